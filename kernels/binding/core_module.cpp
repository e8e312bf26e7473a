// radixkv.kernels._core
#include <algorithm>

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

// What `runs` gives: a part at a time of what was resident when it began.
class RunParts {
  public:
    explicit RunParts(nb::object tree)
        : tree_(std::move(tree)), epoch_(owner().epoch()), ends_(owner().run_ends()) {}

    nb::list take(uint64_t num_tokens) {
        if (epoch_ != owner().epoch())
            raise(python().StaleHandleError, "the tree was reset; begin again");
        return owner().runs(ends_, at_, num_tokens).made();
    }

    void sort() {
        nb::gil_scoped_release release;
        std::sort(ends_.begin(), ends_.end(),
                  [](const Place& a, const Place& b) { return a.run < b.run; });
    }

    bool is_done() const { return at_ == ends_.size(); }

  private:
    TreeBinding& owner() const { return *nb::inst_ptr<TreeBinding>(tree_); }

    nb::object tree_;
    uint64_t epoch_;
    std::vector<Place> ends_;
    size_t at_ = 0;
};

// What `table` gives: every node as it was, and its codes as far as they are still there.
class NodeTable {
  public:
    explicit NodeTable(nb::object tree)
        : tree_(std::move(tree)), epoch_(owner().epoch()), rows_(owner().table(spaces_)) {}

    size_t size() const { return rows_.size(); }

    nb::object facts(size_t at) const {
        const NodeFacts& node = row(at);
        return named_tuple(python().NodeFacts, node.id, node.parent_id, spaces_.at(node.root),
                           node.start, node.end.length - node.start, node.lock_ref, node.recency);
    }

    nb::object codes(size_t at) {
        const NodeFacts& node = row(at);
        return epoch_ == owner().epoch() ? owner().codes_of(node) : python().no_slots;
    }

  private:
    TreeBinding& owner() const { return *nb::inst_ptr<TreeBinding>(tree_); }
    const NodeFacts& row(size_t at) const {
        if (at < rows_.size()) return rows_[at];
        throw nb::index_error();
    }

    nb::object tree_;
    uint64_t epoch_;
    std::unordered_map<NodeId, nb::object> spaces_;
    std::vector<NodeFacts> rows_;
};

// What `begin_check` gives: every invariant, some nodes at a time.
class Check {
  public:
    Check(nb::object tree, nb::handle num_slots)
        : tree_(std::move(tree)), check_(owner().begin_check(num_slots)) {}

    nb::list take(size_t num_nodes) {
        check_valid();
        if (check_->has_seen_all()) {
            is_done_ = true;
            return owner().compare_sums(*check_);
        }
        nb::list lines;
        for (const std::string& line : check_->look(num_nodes)) lines.append(line.c_str());
        check_valid();
        return lines;
    }

    nb::object marks(size_t first, size_t end) const {
        check_valid();
        bool* out;
        nb::object marks = new_array(end > first ? end - first : 0, out);
        for (size_t slot = first; slot < end; ++slot) *out++ = check_->holds(slot);
        return marks;
    }

    bool is_done() const { return is_done_; }

    void close() { check_.reset(); }

  private:
    TreeBinding& owner() const { return *nb::inst_ptr<TreeBinding>(tree_); }

    void check_valid() const {
        if (check_ && !check_->is_void()) return;
        raise(python().StaleHandleError,
              "the tree was reset during its check, or memory ran out; begin again");
    }

    nb::object tree_;  // outlives the check
    std::unique_ptr<TreeCheck> check_;
    bool is_done_ = false;
};

void bind_tree(nb::module_& module) {
    const nb::object& space = python().default_namespace;
    nb::tuple none;
    nb::class_<TreeBinding>(module, "Tree")
        .def(nb::init<nb::handle, nb::handle, nb::handle>(), "page_size"_a.none() = 1,
             "policy"_a.none() = "lru", "shares"_a.none() = python().no_shares)
        .def("match_prefix", &TreeBinding::match_prefix, "token_ids"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none,
             "checked"_a.none() = false)
        .def("match_handle", &TreeBinding::match_handle, "token_ids"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none)
        .def("path_slots", &TreeBinding::path_slots, "handle"_a.none())
        .def("path_slices", &TreeBinding::path_slices, "handle"_a.none(), "most"_a.none())
        .def("probe", &TreeBinding::probe, "token_ids"_a.none(), "namespace"_a.none() = space,
             nb::kw_only(), "content"_a.none() = none, "checked"_a.none() = false)
        .def("probe_batch", &TreeBinding::probe_batch, "prompts"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "checked"_a.none() = false)
        .def("match_batch", &TreeBinding::match_batch, "prompts"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "checked"_a.none() = false)
        .def("match_lengths", &TreeBinding::match_lengths, "prompts"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "checked"_a.none() = false)
        .def("inc_lock_ref", &TreeBinding::inc_lock_ref, "handle"_a.none())
        .def("path_of", &TreeBinding::path_of, "handle"_a.none())
        .def("dec_lock_ref", &TreeBinding::dec_lock_ref, "handle"_a.none())
        .def("insert", &TreeBinding::insert, "token_ids"_a.none(), "slots"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none,
             "priority"_a.none() = 0, "chunked"_a.none() = false, "after"_a.none() = nb::none(),
             "checked"_a.none() = false)
        .def("insert_from", &TreeBinding::insert_from, "token_ids"_a.none(), "tickets"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "priority"_a.none() = 0,
             "chunked"_a.none() = false, "after"_a.none() = nb::none())
        .def("evict", &TreeBinding::evict, "num_tokens"_a.none(), "namespace"_a.none() = nb::none(),
             nb::kw_only(), "wanted"_a.none() = 0)
        .def("evict_below", &TreeBinding::evict_below, "token_ids"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none)
        .def("evict_below_into", &TreeBinding::evict_below_into, "token_ids"_a.none(), "ledger"_a,
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none)
        .def("evict_beyond_caps", &TreeBinding::evict_beyond_caps)
        .def("advance_clock", &TreeBinding::advance_clock, "milliseconds"_a.none())
        .def("room_for", &TreeBinding::room_for, "namespace"_a.none() = nb::none())
        .def("share_sizes", &TreeBinding::share_sizes)
        .def("evict_to", &TreeBinding::evict_to, "tickets"_a.none(), "num_tokens"_a.none(),
             "most"_a.none())
        .def("evict_into", &TreeBinding::evict_into, "num_tokens"_a.none(), "ledger"_a,
             "fence"_a.none() = nb::none())
        .def("evict_beyond_caps_into", &TreeBinding::evict_beyond_caps_into, "ledger"_a,
             "fence"_a.none() = nb::none())
        .def("take", nb::overload_cast<nb::handle, LedgerBinding&, nb::handle>(&TreeBinding::take),
             "n"_a.none(), "ledger"_a, "namespace"_a.none() = nb::none())
        .def("reset", &TreeBinding::reset)
        .def("reset_into", &TreeBinding::reset_into, "ledger"_a, "readers"_a)
        .def("admit", &TreeBinding::admit, "token_ids"_a.none(), "ledger"_a, "row"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none,
             "max_cached"_a.none() = nb::none(), "extra"_a.none() = 0,
             "length"_a.none() = nb::none())
        .def("publish", &TreeBinding::publish, "token_ids"_a.none(), "ledger"_a, "row"_a.none(),
             "namespace"_a.none() = space, nb::kw_only(), "content"_a.none() = none,
             "priority"_a.none() = 0, "chunked"_a.none() = false, "held"_a.none() = nb::none(),
             "fence"_a.none() = nb::none(), "length"_a.none() = nb::none(), "unlock"_a = false)
        .def_prop_ro("page_size", &TreeBinding::page_size)
        .def_prop_ro("policy", &TreeBinding::policy)
        .def_prop_ro("shares", &TreeBinding::shares)
        .def_prop_ro("epoch", &TreeBinding::epoch)
        .def_prop_ro("evictable_size", &TreeBinding::evictable_size)
        .def_prop_ro("protected_size", &TreeBinding::protected_size)
        .def_prop_ro("total_size", &TreeBinding::total_size)
        .def_prop_ro("num_nodes", &TreeBinding::num_nodes)
        .def("track_changes", &TreeBinding::track_changes)
        .def("take_changes", &TreeBinding::take_changes)
        .def("all_slots", &TreeBinding::all_slots)
        .def("sizes_of", &TreeBinding::sizes_of, "namespace"_a.none())
        .def(
            "begin_check",
            [](nb::handle_t<TreeBinding> self, nb::handle num_slots) {
                return new Check(nb::borrow(self), num_slots);
            },
            "num_slots"_a.none() = nb::none())
        .def("locks", &TreeBinding::locks_of_handles)
        .def("namespace_of", &TreeBinding::namespace_of, "handle"_a.none())
        .def("walk", [](nb::handle_t<TreeBinding> self) { return NodeWalk(nb::borrow(self)); })
        .def("table", [](nb::handle_t<TreeBinding> self) { return NodeTable(nb::borrow(self)); })
        .def("runs", [](nb::handle_t<TreeBinding> self) { return RunParts(nb::borrow(self)); })
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
        .def("free_slots", &AllocatorBinding::free_slots)
        .def("free_marks", &AllocatorBinding::free_marks, "first"_a, "end"_a)
        .def("check_integrity", &AllocatorBinding::check_integrity);
}

void bind_tickets(nb::module_& module) {
    nb::class_<TicketsBinding>(module, "TicketRing")
        .def(nb::init<nb::handle>(), "num_tickets"_a.none())
        .def_prop_ro("num_tickets", &TicketsBinding::num_tickets)
        .def_prop_ro("free_size", &TicketsBinding::free_size)
        .def("take", &TicketsBinding::take, "n"_a.none())
        .def("free", nb::overload_cast<nb::handle>(&TicketsBinding::free), "tickets"_a.none());
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
    nb::class_<NodeTable>(module, "NodeTable")
        .def("__len__", &NodeTable::size)
        .def("facts", &NodeTable::facts, "at"_a)
        .def("codes", &NodeTable::codes, "at"_a);
    nb::class_<Check>(module, "TreeCheck")
        .def_prop_ro("is_done", &Check::is_done)
        .def("take", &Check::take, "num_nodes"_a)
        .def("marks", &Check::marks, "first"_a, "end"_a)
        .def("close", &Check::close);
    nb::class_<RunParts>(module, "RunParts")
        .def_prop_ro("is_done", &RunParts::is_done)
        .def("sort", &RunParts::sort)
        .def("take", &RunParts::take, "num_tokens"_a);
    module.def("read_ids", &read_ids, "ids"_a.none());
    module.def("copy_ids", &copy_ids, "ids"_a.none());
    module.def("append_ids", &append_ids, "ids"_a.none(), "buffer"_a, "at"_a);
    module.def("read_message_ids", &read_message_ids, "message"_a, "sequences"_a, "packed"_a);
    bind_changes(module);
    bind_tree(module);
    bind_allocator(module);
    bind_ledger(module);
    bind_tickets(module);
    module.attr("HAS_ASSERTIONS") = HAS_ASSERTIONS;
}

}  // namespace radixkv
