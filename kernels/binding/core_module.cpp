// radixkv.kernels._core
#include "assertions.hpp"
#include "tree_binding.hpp"
#include "wire.hpp"

namespace radixkv {

namespace {

using namespace nb::literals;

// What `walk` gives: each node as it is when its turn comes.
class NodeWalk {
  public:
    explicit NodeWalk(nb::object tree) : tree_(std::move(tree)), nodes_(owner().walk()) {}

    nb::object next() {
        if (at_ == nodes_.size()) throw nb::stop_iteration();
        return owner().info(nodes_[at_++]);
    }

  private:
    const TreeBinding& owner() const { return *nb::inst_ptr<TreeBinding>(tree_); }

    nb::object tree_;
    std::vector<NodeInEpoch> nodes_;
    size_t at_ = 0;
};

void bind_tree(nb::module_& module) {
    const nb::object& space = python().default_namespace;
    nb::tuple none;
    nb::class_<TreeBinding>(module, "Tree")
        .def(nb::init<nb::handle, nb::handle>(), "page_size"_a.none() = 1,
             "policy"_a.none() = "lru")
        .def("match_prefix", &TreeBinding::match_prefix, "token_ids"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none,
             "checked"_a = false)
        .def("probe", &TreeBinding::probe, "token_ids"_a.none(), "namespace"_a.none() = space,
             nb::kw_only(), "content"_a.none() = none)
        .def("probe_batch", &TreeBinding::probe_batch, "prompts"_a.none(),
             "namespace"_a.none() = space)
        .def("match_batch", &TreeBinding::match_batch, "prompts"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "checked"_a = false)
        .def("match_lengths", &TreeBinding::match_lengths, "prompts"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "checked"_a = false)
        .def("inc_lock_ref", &TreeBinding::inc_lock_ref, "handle"_a.none())
        .def("dec_lock_ref", &TreeBinding::dec_lock_ref, "handle"_a.none())
        .def("insert", &TreeBinding::insert, "token_ids"_a.none(), "slots"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none,
             "priority"_a.none() = 0, "chunked"_a = false, "after"_a.none() = nb::none(),
             "checked"_a = false)
        .def("evict", &TreeBinding::evict, "num_tokens"_a.none())
        .def("evict_into", &TreeBinding::evict_into, "num_tokens"_a.none(), "ledger"_a,
             "fence"_a.none() = nb::none())
        .def("take", nb::overload_cast<nb::handle, LedgerBinding&>(&TreeBinding::take),
             "n"_a.none(), "ledger"_a)
        .def("reset", &TreeBinding::reset)
        .def("reset_into", &TreeBinding::reset_into, "ledger"_a, "readers"_a)
        .def("admit", &TreeBinding::admit, "token_ids"_a.none(), "ledger"_a, "row"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none,
             "max_cached"_a.none() = nb::none(), "extra"_a.none() = 0)
        .def("publish", &TreeBinding::publish, "token_ids"_a.none(), "ledger"_a, "row"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none,
             "priority"_a.none() = 0, "chunked"_a = false, "held"_a.none() = nb::none(),
             "fence"_a.none() = nb::none())
        .def_prop_ro("page_size", &TreeBinding::page_size)
        .def_prop_ro("policy", &TreeBinding::policy)
        .def_prop_ro("epoch", &TreeBinding::epoch)
        .def_prop_ro("evictable_size", &TreeBinding::evictable_size)
        .def_prop_ro("protected_size", &TreeBinding::protected_size)
        .def_prop_ro("total_size", &TreeBinding::total_size)
        .def_prop_ro("num_nodes", &TreeBinding::num_nodes)
        .def("track_changes", &TreeBinding::track_changes)
        .def("take_changes", &TreeBinding::take_changes)
        .def("all_slots", &TreeBinding::all_slots)
        .def("sizes_of", &TreeBinding::sizes_of, "namespace"_a.none())
        .def("check_integrity", &TreeBinding::check_integrity)
        .def("walk", [](nb::handle_t<TreeBinding> self) { return NodeWalk(nb::borrow(self)); })
        .def("_counters", &TreeBinding::counters)
        .def("_restore", &TreeBinding::restore, "nodes"_a, "counters"_a);
}

void bind_allocator(nb::module_& module) {
    nb::class_<AllocatorBinding>(module, "SlotAllocator")
        .def(nb::init<nb::handle, nb::handle>(), "num_slots"_a.none(), "page_size"_a.none() = 1)
        .def_prop_ro("num_slots", &AllocatorBinding::num_slots)
        .def_prop_ro("page_size", &AllocatorBinding::page_size)
        .def_prop_ro("free_size", &AllocatorBinding::free_size)
        .def("allocate", &AllocatorBinding::allocate, "n"_a.none())
        .def("free", nb::overload_cast<nb::handle>(&AllocatorBinding::free), "slots"_a.none())
        .def("check_range", &AllocatorBinding::check_slots, "slots"_a.none())
        .def("free_slots", &AllocatorBinding::free_slots);
}

void bind_ledger(nb::module_& module) {
    nb::class_<LedgerBinding>(module, "Ledger")
        .def(nb::init<nb::handle_t<AllocatorBinding>>(), "allocator"_a)
        .def_prop_ro("allocator", &LedgerBinding::allocator)
        .def_prop_ro("sharers", &LedgerBinding::sharers)
        .def_prop_ro("is_retired", &LedgerBinding::is_retired)
        .def_prop_ro("deferred", &LedgerBinding::deferred)
        .def_prop_ro("free_size", &LedgerBinding::free_size)
        .def_prop_ro("deferred_size", &LedgerBinding::deferred_size)
        .def("take", nb::overload_cast<nb::handle>(&LedgerBinding::take), "n"_a.none())
        .def("give_back", nb::overload_cast<nb::handle, nb::handle>(&LedgerBinding::give_back),
             "slots"_a.none(), "fence"_a.none())
        .def("free", nb::overload_cast<nb::handle, nb::handle>(&LedgerBinding::free),
             "slots"_a.none(), "fence"_a.none() = nb::none());
}

}  // namespace

NB_MODULE(_core, module) {
#ifdef NDEBUG
    // A server or thread that runs until the interpreter ends keeps its cache alive: not a leak.
    nb::set_leak_warnings(false);
#endif
    import_python();
    nb::class_<Handle>(module, "Handle").def_prop_ro("length", [](const Handle& handle) {
        return handle.place.length;
    });
    nb::class_<NodeWalk>(module, "NodeWalk")
        .def("__iter__", [](nb::object self) { return self; })
        .def("__next__", &NodeWalk::next);
    module.def("read_ids", &read_ids, "ids"_a.none());
    module.def("copy_ids", &copy_ids, "ids"_a.none());
    module.def("read_message_ids", &read_message_ids, "message"_a, "sequences"_a, "packed"_a);
    bind_changes(module);
    bind_tree(module);
    bind_allocator(module);
    bind_ledger(module);
    module.attr("HAS_ASSERTIONS") = HAS_ASSERTIONS;
}

}  // namespace radixkv
