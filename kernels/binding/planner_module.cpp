// radixkv.kernels._planner

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "assertions.hpp"
#include "attention/planner.hpp"

namespace nb = nanobind;

namespace radixkv {

namespace {

using RowArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::ndarray<nb::numpy, T, nb::c_contig> as_array(std::vector<T>&& values, size_t columns) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    const size_t shape[2] = {kept->size() / columns, columns};
    return {kept->data(), columns == 1 ? size_t{1} : size_t{2}, shape, owner};
}

Shape as_shape(nb::handle options) {
    const auto array = nb::cast<RowArray>(options);
    Shape shape;
    if (array.size() * sizeof(int32_t) != sizeof(shape))
        throw nb::value_error("options must be the ten int32 of Shape, in order");
    std::memcpy(&shape, array.data(), sizeof(shape));
    return shape;
}

// A planner and the arrays that it reads.
class PlannerBinding {
  public:
    // A row that is not contiguous int32 is copied, and the copy lives as long as its RowArray.
    PlannerBinding(nb::sequence rows, nb::sequence query_lens) {
        std::vector<Row> taken;
        for (nb::handle row : rows) {
            arrays_.push_back(nb::cast<RowArray>(row));
            taken.push_back(
                {arrays_.back().data(), static_cast<int32_t>(arrays_.back().size()), 1});
        }
        if (nb::len(query_lens) != taken.size())
            throw nb::value_error("query_lens must have one entry a row");
        size_t at = 0;
        for (nb::handle query_len : query_lens)
            taken[at++].query_len = nb::cast<int32_t>(query_len);
        planner_ = std::make_unique<Planner>(std::move(taken));
    }

    nb::object survey(nb::sequence shapes) {
        std::vector<int64_t> all;
        for (nb::handle options : shapes) {
            const Survey found = planner_->survey(as_shape(options));
            all.insert(all.end(), found.begin(), found.end());
        }
        return nb::cast(as_array(std::move(all), std::tuple_size_v<Survey>));
    }

    nb::tuple cut(nb::handle options) {
        Plan plan = planner_->cut(as_shape(options));
        return nb::make_tuple(
            as_array(std::move(plan.wide), 8), as_array(std::move(plan.narrow), 8),
            as_array(std::move(plan.q_indices), 2), as_array(std::move(plan.merge_indptr), 1),
            as_array(std::move(plan.runs), 4), as_array(std::move(plan.growing), 1));
    }

  private:
    std::vector<RowArray> arrays_;
    std::unique_ptr<Planner> planner_;
};

}  // namespace

NB_MODULE(_planner, module) {
#ifdef NDEBUG
    // A server or thread that runs until the interpreter ends keeps its cache alive: not a leak.
    nb::set_leak_warnings(false);
#endif
    module.attr("HAS_ASSERTIONS") = HAS_ASSERTIONS;
    nb::class_<PlannerBinding>(module, "Planner")
        .def(nb::init<nb::sequence, nb::sequence>(), nb::arg("rows"), nb::arg("query_lens"))
        .def("survey", &PlannerBinding::survey, nb::arg("shapes"))
        .def("cut", &PlannerBinding::cut, nb::arg("shape"));
}

}  // namespace radixkv
