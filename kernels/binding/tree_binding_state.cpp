// Looking at every node: walking, checking, pickling.
#include "tree_binding.hpp"

namespace radixkv {

// ---- walking ----

namespace {

std::vector<NodeId> ids(const std::vector<NodeInEpoch>& nodes) {
    std::vector<NodeId> ids;
    for (const NodeInEpoch& at : nodes) ids.push_back(at.id);
    return ids;
}

}  // namespace

nb::object TreeBinding::all_slots() const {
    int32_t* out;
    nb::object slots = new_array(total_size(), out);
    for (const NodeInEpoch& at : walk()) {
        const Node& node = tree_.node(at.id);
        node.copy_slots(0, node.length, out);
        out += node.length;
    }
    return slots;
}

nb::tuple TreeBinding::sizes_of(nb::handle space) {
    Spaces::check(space);
    NodeId root = spaces_.find(space);
    SpaceSize size = root == NONE ? SpaceSize{} : tree_.size_of(root);
    return nb::make_tuple(size.evictable, size.locked, size.nodes);
}

nb::dict TreeBinding::share_sizes() const {
    nb::dict sizes;
    for (auto [salt, number] : spaces_.shares()) {
        const Share& share = tree_.shares()[nb::cast<ShareId>(number)];
        sizes[salt] = named_tuple(python().ShareSizes, share.evictable, share.locked);
    }
    return sizes;
}

std::vector<NodeInEpoch> TreeBinding::walk() const {
    std::vector<NodeId> ids;
    for (NodeId root : spaces_.roots()) tree_.walk(root, ids);
    std::vector<NodeInEpoch> nodes;
    nodes.reserve(ids.size());
    for (NodeId id : ids) nodes.push_back({epoch_, id, tree_.node(id).generation});
    return nodes;
}

nb::object TreeBinding::info(const NodeInEpoch& at) const {
    if (at.epoch != epoch_ || !tree_.is_alive(at.id, at.generation)) {
        raise(python().StaleHandleError, "the tree changed during the walk; walk again");
    }
    const Node& node = tree_.node(at.id);
    int32_t* out;
    nb::object slots = new_array(node.length, out);
    node.copy_slots(0, node.length, out);
    bool is_top = tree_.node(node.parent).parent == NONE;
    return named_tuple(python().NodeInfo, public_id(node, at.id),
                       is_top ? 0 : public_id(tree_.node(node.parent), node.parent),
                       spaces_.space_of(tree_.root_of(at.id)), node.start,
                       copy_array(node.tokens(), node.length), std::move(slots), node.lock_ref,
                       node.recency, node.hit_count, node.priority, node.is_leaf(), node.run,
                       node.run_offset);
}

Changes TreeBinding::runs(const std::vector<Place>& ends, size_t& at, uint64_t most) {
    Changes found;
    uint64_t size = 0;
    while (at < ends.size() && size < most) {
        tree_.run_path(ends[at++], path_);
        if (path_.empty()) continue;
        const Node &first = tree_.node(path_[0]), &above = tree_.node(first.parent);
        assert(first.run_offset == 0);
        uint32_t length = tree_.node(path_.back()).end() - first.start;
        int32_t* out;
        nb::object codes = new_array(length, out);
        for (NodeId id : path_) {
            const Node& node = tree_.node(id);
            out = std::copy_n(node.tokens(), node.length, out);
        }
        found.reserve(1);
        found.add({first.run, 0, above.run, above.run_offset + above.length, std::move(codes),
                   spaces_.space_of(tree_.root_of(path_[0]))});
        size += length;
    }
    return found;
}

std::vector<NodeFacts> TreeBinding::table(std::unordered_map<NodeId, nb::object>& spaces) const {
    std::vector<NodeFacts> table;
    table.reserve(num_nodes());
    std::vector<NodeId> ids;
    for (NodeId root : spaces_.roots()) {
        spaces[root] = spaces_.space_of(root);
        ids.clear();
        tree_.walk(root, ids);
        for (NodeId id : ids) {
            const Node& node = tree_.node(id);
            bool is_top = node.parent == root;
            table.push_back(
                {public_id(node, id), is_top ? 0 : public_id(tree_.node(node.parent), node.parent),
                 node.recency, tree_.place(id, node.end()), node.start, node.lock_ref, root});
        }
    }
    return table;
}

nb::object TreeBinding::codes_of(const NodeFacts& at) {
    tree_.run_path(at.end, path_);
    std::vector<int32_t> codes;
    for (NodeId id : path_) {
        const Node& node = tree_.node(id);
        uint32_t from = std::max(node.start, at.start);
        uint32_t to = std::min(node.end(), at.end.length);
        for (uint32_t i = from; i < to; ++i) codes.push_back(node.tokens()[i - node.start]);
    }
    return copy_array(codes.data(), codes.size());
}

// ---- checking ----

std::vector<Lock> TreeBinding::locks() const {
    std::vector<Lock> locks;
    locked_.each([&](const Handle& handle) { locks.push_back({handle.place, handle.locks}); });
    return locks;
}

nb::dict TreeBinding::locks_of_handles() const {
    nb::dict locks;
    locked_.each([&](const Handle& handle) { locks[nb::handle(handle.self)] = handle.locks; });
    return locks;
}

nb::object TreeBinding::namespace_of(nb::handle handle) const {
    NodeId node;
    resolve(handle, node);
    return node == NONE ? nb::none() : spaces_.space_of(tree_.root_of(node));
}

std::unique_ptr<TreeCheck> TreeBinding::begin_check(nb::handle num_slots) const {
    size_t most = 0;
    if (!num_slots.is_none()) {
        most = nb::cast<size_t>(num_slots);
    } else {
        for (const NodeInEpoch& at : walk()) {
            const Node& node = tree_.node(at.id);
            for (uint32_t i = 0; i < node.length; ++i)
                most = std::max(most, size_t{static_cast<uint32_t>(node.slot(i))} + 1);
        }
    }
    auto is_root = [this](NodeId id) { return spaces_.has_root(id); };
    return std::make_unique<TreeCheck>(tree_, is_root, most, !num_slots.is_none());
}

nb::list TreeBinding::compare_sums(const TreeCheck& check) {
    release_content();
    nb::list lines;
    for (const std::string& line : check.compare_sums(locks())) lines.append(line.c_str());
    nb::dict there;
    for (auto [number, count] : check.codes()) there[nb::int_(number)] = count;
    nb::object said = content_.attr("uses")();
    if (!there.equal(said) || nb::len(there) != nb::len(content_)) {
        lines.append(
            ("content: " + show(said) + " codes are counted, " + show(there) + " are there")
                .c_str());
    }
    return lines;
}

// ---- pickling ----

nb::tuple TreeBinding::counters() {
    release_content();
    std::vector<uint64_t> learnt = tree_.policy().save(ids(walk()));
    nb::bytes history(learnt.data(), learnt.size() * sizeof(uint64_t));
    return nb::make_tuple(tree_.ticks(), tree_.runs(), content_, history);
}

void TreeBinding::restore_history(nb::bytes history, const std::vector<NodeId>& nodes) {
    std::vector<uint64_t> learnt(history.size() / sizeof(uint64_t));
    size_t size = sizeof(uint64_t) * learnt.size();
    if (size) std::memcpy(learnt.data(), history.data(), size);
    try {
        tree_.policy().load(learnt, nodes);
    } catch (const std::out_of_range&) {
        raise(python().InvalidArgumentError, "state must be that of a pickled tree");
    }
}

void TreeBinding::restore(nb::handle nodes, nb::tuple counters) {
    std::vector<NodeId> restored;
    std::unordered_map<uint64_t, NodeId> by_id;
    for (nb::handle info : nb::iter(nodes)) {
        auto codes = view_int32(info.attr("codes")), slots = view_int32(info.attr("slots"));
        if (!codes || !slots || codes.size != slots.size || !codes.size ||
            codes.size % page_size()) {
            raise(python().InvalidArgumentError, "state must be that of a pickled tree");
        }
        TokenRun run(slots.items, static_cast<uint32_t>(codes.size));
        std::memcpy(run.tokens(), codes.items, size_t{4} * codes.size);
        Node like;
        like.recency = nb::cast<uint64_t>(info.attr("recency"));
        like.hit_count = nb::cast<uint32_t>(info.attr("hit_count"));
        like.priority = nb::cast<int64_t>(info.attr("priority"));
        like.run = nb::cast<uint64_t>(info.attr("run"));
        like.run_offset = nb::cast<uint32_t>(info.attr("run_offset"));
        auto parent_id = nb::cast<uint64_t>(info.attr("parent_id"));
        NodeId parent =
            parent_id ? by_id.at(parent_id) : spaces_.find_or_add(info.attr("namespace"));
        restored.push_back(tree_.restore(parent, like, std::move(run)));
        by_id[nb::cast<uint64_t>(info.attr("id"))] = restored.back();
        content_codes_ += count_negative(codes.items, static_cast<uint32_t>(codes.size));
    }
    restore_history(nb::cast<nb::bytes>(counters[3]), restored);
    tree_.restore_order(nb::cast<uint64_t>(counters[0]), nb::cast<uint64_t>(counters[1]));
    content_ = counters[2];
}

}  // namespace radixkv
