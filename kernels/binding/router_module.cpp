// radixkv.kernels._router
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>

#include "assertions.hpp"
#include "input.hpp"
#include "random_seed.hpp"
#include "router/cheapest.hpp"
#include "router/holdings.hpp"

namespace radixkv {

namespace {

using namespace nb::literals;

// `bytes` and bytearrays as little-endian int32, in place; empty for all else.
ArrayView<int32_t> view_bytes(nb::handle codes) {
    const char* items;
    Py_ssize_t size;
    if (PyBytes_CheckExact(codes.ptr())) {
        items = PyBytes_AS_STRING(codes.ptr());
        size = PyBytes_GET_SIZE(codes.ptr());
    } else if (PyByteArray_CheckExact(codes.ptr())) {
        items = PyByteArray_AS_STRING(codes.ptr());
        size = PyByteArray_GET_SIZE(codes.ptr());
    } else {
        return {};
    }
    static_assert(std::endian::native == std::endian::little);
    if (size % 4 || reinterpret_cast<uintptr_t>(items) % alignof(int32_t)) return {};
    return {reinterpret_cast<const int32_t*>(items), static_cast<size_t>(size) / 4};
}

// The codes of an event, in place where they are int32 or little-endian bytes.
class Codes {
  public:
    explicit Codes(nb::handle codes) : view_(view_int32(codes)) {
        if (!view_) view_ = view_bytes(codes);
        if (view_) return;
        converted_ = python().asarray(codes, "int32").attr("copy")();
        view_ = view_int32(converted_);
    }

    Int32Key key() const { return {view_.items, static_cast<uint32_t>(view_.size), true}; }

  private:
    nb::object converted_;
    ArrayView<int32_t> view_;
};

struct HoldingsBinding : Holdings {
    HoldingsBinding() : Holdings(random_seed()) {}
};

uint32_t add_holder(HoldingsBinding& self, uint32_t page_size) {
    if (!page_size) throw nb::value_error("page_size must be at least 1; got 0");
    return self.add_holder(page_size);
}

bool store(HoldingsBinding& self, uint32_t holder, uint64_t run, uint64_t parent_run,
           uint32_t parent_offset, nb::handle codes, NodeId root) {
    Codes own(codes);
    return self.store(holder, run, parent_run, parent_offset, own.key(), root);
}

// By holders' numbers, or those of `holders` in its order.
nb::object lengths(const HoldingsBinding& self, nb::handle token_ids, NodeId root,
                   nb::handle holders) {
    std::vector<int32_t> all;
    auto look = [&](const auto& key) -> std::optional<nb::object> {
        all.assign(self.num_holders(), 0);
        uint32_t matched = self.lengths(key, root, all.data());
        // A list's items that equal stored codes are token ids. An array's may be negative, as
        // codes of content are.
        constexpr bool is_list = std::is_same_v<std::decay_t<decltype(key)>, ListKey>;
        bool is_doubtful = !is_list && self.has_content();
        if (!key.is_good(is_doubtful ? 0 : matched)) return std::nullopt;
        if (holders.is_none()) return copy_array(all.data(), all.size());
        auto wanted = view_int64(holders);
        if (!wanted) throw nb::value_error("holders must be an int64 array in one dimension");
        int32_t* out;
        nb::object array = new_array(wanted.size, out);
        for (size_t i = 0; i < wanted.size; ++i) out[i] = all.at(wanted.items[i]);
        return array;
    };
    return with_token_ids(token_ids, "token_ids", [] {}, look);
}

nb::list runs(const HoldingsBinding& self, uint32_t holder) {
    nb::list rows;
    self.each_run(holder, [&](const HeldRun& run) {
        int32_t* out;
        nb::object codes = new_array(run.length, out);
        self.copy_codes(run, out);
        rows.append(nb::make_tuple(run.number, self.run(run.parent).number, run.offset, codes,
                                   self.root_of(run)));
    });
    return rows;
}

// What `radixkv/router` has of its own that a pick needs, looked up once and never freed.
struct Picking {
    nb::object Choice, reasons;
};
Picking* picking = nullptr;

template <class Item>
const Item* items(ArrayView<Item> view, size_t count, const char* name) {
    if (view && view.size == count) return view.items;
    throw nb::value_error(
        (std::string(name) + " must be an array with one item for each worker").c_str());
}

template <class Length>
nb::object pick(nb::tuple asked, ArrayView<Length> lengths, Weights by) {
    size_t count = lengths.size;
    Workers<Length> workers{items(lengths, std::max<size_t>(count, 1), "lengths"),
                            items(view_double(asked[2]), count, "loads"),
                            items(view_double(asked[3]), count, "pending"),
                            items(view_double(asked[4]), count, "recent_loads"),
                            items(view_int64(asked[5]), count, "last_picked"),
                            count};
    size_t at = cheapest(workers, by);
    return named_tuple(picking->Choice, at, picking->reasons[reason(workers, at)]);
}

// The fields of `PickInput`: workers, lengths, loads, pending, recent_loads, last_picked,
// prompt_length, key.
nb::object pick_on(nb::tuple asked, double balance, double most_delayed) {
    Weights by{nb::cast<double>(asked[6]), balance, most_delayed};
    // Lengths of a worker that is trusted in part are fractions, in float64.
    if (auto whole = view_int32(asked[1])) return pick(asked, whole, by);
    return pick(asked, view_double(asked[1]), by);
}

void import_picking() {
    picking = new Picking{nb::module_::import_("radixkv.router.pick_input").attr("RoutingChoice"),
                          nb::module_::import_("radixkv.router.cheapest").attr("REASONS")};
}

}  // namespace

NB_MODULE(_router, module) {
#ifdef NDEBUG
    // A server or thread that runs until the interpreter ends keeps its cache alive: not a leak.
    nb::set_leak_warnings(false);
#endif
    import_python();
    import_picking();
    module.attr("HAS_ASSERTIONS") = HAS_ASSERTIONS;
    nb::class_<HoldingsBinding>(module, "Holdings")
        .def(nb::init<>())
        .def("add_holder", &add_holder, "page_size"_a = 1)
        .def("remove_holder", &HoldingsBinding::remove_holder, "holder"_a)
        .def("add_root", &HoldingsBinding::add_root)
        .def("remove_root", &HoldingsBinding::remove_root, "root"_a)
        .def("is_empty_root", &HoldingsBinding::is_empty_root, "root"_a)
        .def("store", &store, "holder"_a, "run"_a, "parent_run"_a, "parent_offset"_a,
             "codes"_a.none(), "root"_a)
        .def("trim", &HoldingsBinding::trim, "holder"_a, "run"_a, "keep"_a)
        .def("clear", &HoldingsBinding::clear, "holder"_a)
        .def("lengths", &lengths, "token_ids"_a.none(), "root"_a, "holders"_a.none() = nb::none())
        .def("runs", &runs, "holder"_a)
        .def("num_tokens", &HoldingsBinding::num_tokens, "holder"_a)
        .def_prop_ro("num_nodes", &HoldingsBinding::num_nodes)
        .def_prop_ro("total_size", &HoldingsBinding::total_size)
        .def_prop_ro("num_bytes", &HoldingsBinding::num_bytes)
        .def("check_integrity", &HoldingsBinding::check);
    module.def("cheapest", &pick_on, "asked"_a, "balance"_a, "most_delayed"_a);
}

}  // namespace radixkv
