// radixkv.kernels._planner

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>

#include "attention/planner.hpp"

namespace nb = nanobind;

namespace radixkv {

namespace {

using Int32Array = nb::ndarray<nb::numpy, int32_t, nb::c_contig>;

Int32Array as_array(std::vector<int32_t>&& values, size_t columns) {
    auto* kept = new std::vector<int32_t>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<int32_t>*>(p); });
    const size_t shape[2] = {kept->size() / columns, columns};
    return Int32Array(kept->data(), columns == 1 ? 1 : 2, shape, owner);
}

std::vector<int32_t> described(const std::vector<SharedRun>& runs) {
    std::vector<int32_t> all;
    for (const SharedRun& run : runs)
        all.insert(all.end(),
                   {run.row, run.start, run.end, static_cast<int32_t>(run.requests.size())});
    return all;
}

using RowArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::tuple plan_tree(nb::sequence rows, RowArray options) {
    Shape shape;
    if (options.size() * sizeof(int32_t) != sizeof(shape))
        throw nb::value_error("options must be the ten int32 of Shape, in order");
    std::memcpy(&shape, options.data(), sizeof(shape));
    std::vector<Row> taken;
    // A row that is not contiguous int32 is copied, and the copy lives as long as its RowArray.
    std::vector<RowArray> kept;
    for (nb::handle row : rows) {
        kept.push_back(nb::cast<RowArray>(row));
        taken.push_back({kept.back().data(), static_cast<int32_t>(kept.back().size())});
    }
    Planner planner(std::move(taken), shape);
    planner.plan();
    return nb::make_tuple(
        as_array(std::move(planner.wide), 8), as_array(std::move(planner.narrow), 8),
        as_array(std::move(planner.q_indices), 2), as_array(std::move(planner.starts), 1),
        as_array(described(planner.runs), 4), as_array(std::move(planner.growing), 1));
}

}  // namespace

NB_MODULE(_planner, module) {
    module.def("plan_tree", &plan_tree, nb::arg("rows"), nb::arg("options"));
}

}  // namespace radixkv
