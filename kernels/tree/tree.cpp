#include "tree.hpp"

#include <algorithm>
#include <memory>

namespace radixkv {

NodeId Tree::add_root(PrefixHash hash, ShareId share) {
    reserve(1, 0);
    spaces_.reserve();
    NodeId root = nodes_.add();
    nodes_[root].space = spaces_.add(share);
    policy_->init(root);
    policy_->add_root(root, hash);
    return root;
}

// Makes sure that nothing fails before `fresh` nodes were added or cut off, `used` were used, and
// all of them locked.
void Tree::reserve(NodeId fresh, size_t used) {
    nodes_.reserve(fresh);
    edges_.reserve(fresh);
    cut_runs_.reserve(num_tails_ + fresh);
    policy_->reserve(nodes_.bound() + fresh, fresh + used);
    policy_->reserve_places(num_locked_ + 2 * fresh + used);
}

void Tree::clear() noexcept {
    nodes_.clear();
    edges_.clear();
    policy_->clear();
    cut_runs_.clear();
    shares_.clear();
    spaces_.clear();
    evictable_ = protected_ = 0;
    ticks_ = runs_ = 0;
    num_locked_ = num_tails_ = 0;
    for (NodeWatcher* watcher : std::exchange(watchers_, {})) watcher->forgets_all();
}

// ---- looking ----

// Whether it goes down from below a root; for assertions.
bool Tree::is_path(const Path& path) const {
    NodeId above = path.empty() ? NONE : nodes_[path[0]].parent;
    for (NodeId id : path) {
        if (!nodes_[id].is_alive() || nodes_[id].parent != above) return false;
        above = id;
    }
    return path.empty() || nodes_[nodes_[path[0]].parent].parent == NONE;
}

NodeId Tree::root_of(NodeId id) const {
    while (nodes_[id].parent != NONE) id = nodes_[id].parent;
    return id;
}

void Tree::find_path(NodeId id, Path& path) const {
    path.clear();
    for (; nodes_[id].parent != NONE; id = nodes_[id].parent) path.push_back(id);
    std::reverse(path.begin(), path.end());
    assert(is_path(path));
}

void Tree::touch(NodeId id) noexcept {
    nodes_[id].recency = ++ticks_;
    policy_->touch(id);
}

void Tree::touch(const Path& path) noexcept {
    assert(is_path(path));
    for (size_t i = path.size(); i-- > 0;) touch(path[i]);
}

// ---- locks ----

bool Tree::resolve(const Place& place, NodeId& id) const {
    id = place.node;
    if (id == NONE) return true;
    if (!nodes_.is_alive(id, place.generation)) {
        id = cut_end(place.run);
        if (id == NONE) return false;
    }
    if (nodes_[id].end() < place.length) return false;
    while (nodes_[id].start >= place.length) id = nodes_[id].parent;
    assert(nodes_[id].is_alive() && nodes_[id].start < place.length);
    return true;
}

NodeId Tree::split_for_lock(NodeId id, Place& place) {
    if (id != NONE && place.length < nodes_[id].end()) {
        const Node& node = nodes_[id];
        uint32_t at = place.length - node.start;
        TokenRun head = node.cut(0, at), tail = node.cut(at, node.length - at);
        reserve(1, 0);
        id = split(id, std::move(head), std::move(tail));
        for (NodeId above = id; nodes_[above].parent != NONE; above = nodes_[above].parent)
            touch(above);
    }
    place = this->place(id, place.length);
    assert(id == NONE || nodes_[id].end() == place.length);
    return id;
}

// A node that is locked has no place, and must get one when it is unlocked.
void Tree::lock(NodeId id) {
    size_t fresh = 0;
    for (NodeId at = id; at != NONE && nodes_[at].parent != NONE && !nodes_[at].lock_ref;
         at = nodes_[at].parent)
        ++fresh;
    policy_->reserve_places(num_locked_ + fresh);
    add_lock(id, 1);
}

void Tree::unlock(NodeId id) noexcept { add_lock(id, -1); }

void Tree::add_lock(NodeId id, int step) noexcept {
    while (id != NONE && nodes_[id].parent != NONE) {
        Node& node = nodes_[id];
        bool was_free = node.lock_ref == 0;
        assert(step > 0 || !was_free);
        tell_leaves(id, node.length);
        node.lock_ref += step;
        if (was_free || node.lock_ref == 0) {
            int64_t moved = was_free ? int64_t{node.length} : -int64_t{node.length};
            assert((was_free ? evictable_ : protected_) >= node.length);
            protected_ += moved;
            evictable_ -= moved;
            SpaceSize& space = spaces_[node.space];
            space.locked += moved;
            space.evictable -= moved;
            shares_.lock(space.share, moved);
            num_locked_ += was_free ? 1 : -1;
            policy_->place(id);
        }
        tell_enters(id, node.length);
        id = node.parent;
    }
}

// ---- shape ----

uint32_t Tree::edge_hash(NodeId parent, const int32_t* tokens) const {
    return edges_.hash(parent, [&](uint32_t i) { return tokens[i]; }, page_size);
}

void Tree::add_child(NodeId parent, NodeId id) noexcept {
    Node &above = nodes_[parent], &child = nodes_[id];
    child.parent = parent;
    child.space = above.space;
    child.next_sibling = NONE;
    if (above.first_child == NONE) {
        above.first_child = child.prev_sibling = id;
    } else {
        Node& first = nodes_[above.first_child];
        child.prev_sibling = first.prev_sibling;
        nodes_[first.prev_sibling].next_sibling = id;
        first.prev_sibling = id;
    }
    edges_.add(edge_hash(parent, child.tokens()), id);
}

void Tree::remove_child(NodeId parent, NodeId id) noexcept {
    Node &above = nodes_[parent], &child = nodes_[id];
    edges_.remove(edge_hash(parent, child.tokens()), id);
    NodeId first = above.first_child, next = child.next_sibling;
    if (first == id) {
        above.first_child = next;
    } else {
        nodes_[child.prev_sibling].next_sibling = next;
    }
    if (next != NONE) {
        nodes_[next].prev_sibling = child.prev_sibling;
    } else if (first != id) {
        nodes_[first].prev_sibling = child.prev_sibling;
    }
}

void Tree::replace_child(NodeId parent, NodeId id, NodeId by) noexcept {
    Node &above = nodes_[parent], &old = nodes_[id], &fresh = nodes_[by];
    edges_.replace(edge_hash(parent, fresh.tokens()), id, by);
    fresh.parent = parent;
    fresh.space = above.space;
    fresh.next_sibling = old.next_sibling;
    fresh.prev_sibling = old.prev_sibling == id ? by : old.prev_sibling;
    if (above.first_child == id) {
        above.first_child = by;
    } else {
        nodes_[old.prev_sibling].next_sibling = by;
    }
    NodeId after = old.next_sibling != NONE ? old.next_sibling : above.first_child;
    nodes_[after].prev_sibling = by;
}

NodeId Tree::split(NodeId id, TokenRun&& head_run, TokenRun&& tail_run) noexcept {
    uint32_t at = head_run.length;
    assert(0 < at && at < nodes_[id].length && at % page_size == 0);
    tell_leaves(id, 0);
    NodeId head_id = nodes_.add();
    Node &node = nodes_[id], &head = nodes_[head_id];
    head.start = node.start;
    head.lock_ref = node.lock_ref;
    head.copy_facts(node);
    num_locked_ += node.lock_ref > 0;
    num_tails_ += 1;
    spaces_[node.space].nodes += 1;
    policy_->init(head_id);
    head.hold(std::move(head_run));
    replace_child(node.parent, id, head_id);
    node.hold(std::move(tail_run));
    node.start += at;
    node.run_offset += at;
    add_child(head_id, id);
    policy_->split(head_id, id);
    policy_->resized(id);
    tell_enters(head_id, 0);
    tell_enters(id, 0);
    assert(node.parent == head_id && head.end() == node.start && !head.is_leaf());
    return head_id;
}

// A node that came under no lock.
void Tree::count_in(const Node& node) noexcept {
    SpaceSize& space = spaces_[node.space];
    space.evictable += node.length;
    space.nodes += 1;
    evictable_ += node.length;
    shares_.add(space.share, node.length);
}

NodeId Tree::add_leaf(NodeId parent, TokenRun&& run, int64_t priority) noexcept {
    assert(run.length > 0 && run.length % page_size == 0);
    NodeId id = nodes_.add();
    Node& leaf = nodes_[id];
    leaf.hold(std::move(run));
    leaf.start = nodes_[parent].end();
    leaf.run = ++runs_;
    leaf.priority = priority;
    policy_->init(id);
    add_child(parent, id);
    count_in(leaf);
    policy_->leafness_changed(parent);
    tell_enters(id, 0);
    return id;
}

Growth Tree::prepare(Path& path, const Descent& found, TokenRun run) {
    assert(is_path(path));
    Growth growth{found, {}, {}, std::move(run)};
    if (found.partial != NONE) {
        const Node& node = nodes_[found.partial];
        uint32_t at = found.length - node.start;
        growth.head = node.cut(0, at);
        growth.tail = node.cut(at, node.length - at);
    }
    reserve(2, path.size());
    path.reserve(path.size() + 2);
    return growth;
}

NodeId Tree::extend(Path& path, Growth&& growth, NodeId root, int64_t priority,
                    bool is_hit) noexcept {
    assert(nodes_[root].parent == NONE && is_path(path));
    assert(path.empty() || root_of(path[0]) == root);
    if (NodeId partial = growth.found.partial; partial != NONE)
        path.push_back(split(partial, std::move(growth.head), std::move(growth.tail)));
    if (is_hit) policy_->use(path);
    NodeId leaf = NONE;
    if (growth.leaf.length > 0) {
        leaf = add_leaf(path.empty() ? root : path.back(), std::move(growth.leaf), priority);
        path.push_back(leaf);
        policy_->add_leaf(leaf, !is_hit);
    }
    for (NodeId id : path) {
        nodes_[id].priority = std::max(nodes_[id].priority, priority);
        nodes_[id].hit_count += is_hit;
    }
    touch(path);
    assert(leaf == NONE || (path.back() == leaf && nodes_[leaf].is_leaf()));
    return leaf;
}

// ---- evicting ----

uint32_t Tree::run_hash(uint64_t run) const {
    auto half = [&](uint32_t i) { return static_cast<uint32_t>(run >> (32 * i)); };
    return cut_runs_.hash(NONE, half, 2);
}

// The last node of a run that was cut, or NONE.
NodeId Tree::cut_end(uint64_t run) const {
    if (!cut_runs_.size()) return NONE;
    return cut_runs_.find(run_hash(run), [&](NodeId id) { return nodes_[id].run == run; });
}

void Tree::note_end_of_run(NodeId id) noexcept {
    const Node& leaf = nodes_[id];
    bool was_cut = cut_end(leaf.run) == id;
    if (leaf.run_offset > 0) {
        num_tails_ -= 1;
        if (was_cut) return cut_runs_.replace(run_hash(leaf.run), id, leaf.parent);
        cut_runs_.add(run_hash(leaf.run), leaf.parent);
    } else if (was_cut) {
        cut_runs_.remove(run_hash(leaf.run), id, num_tails_);
    }
}

void Tree::unlocked_below(NodeId top, std::vector<NodeId>& out) const {
    walk(top, out);
    auto is_locked = [&](NodeId id) { return nodes_[id].lock_ref > 0; };
    out.erase(std::remove_if(out.begin(), out.end(), is_locked), out.end());
    std::reverse(out.begin(), out.end());
}

NodeId Tree::remove_leaf(NodeId id) noexcept {
    NodeId parent = nodes_[id].parent;
    assert(nodes_[id].is_leaf() && !nodes_[id].lock_ref && parent != NONE);
    note_end_of_run(id);
    policy_->remove(id);
    spaces_[nodes_[id].space].nodes -= 1;
    remove_child(parent, id);
    nodes_.remove(id);
    if (!nodes_[parent].is_leaf()) return NONE;
    if (nodes_[parent].parent == NONE) return parent;
    policy_->leafness_changed(parent);
    return NONE;
}

// ---- walking and pickling ----

void Tree::walk(NodeId root, std::vector<NodeId>& out) const {
    NodeId id = nodes_[root].first_child;
    while (id != NONE) {
        out.push_back(id);
        if (nodes_[id].first_child != NONE) {
            id = nodes_[id].first_child;
            continue;
        }
        while (id != root && nodes_[id].next_sibling == NONE) id = nodes_[id].parent;
        id = id == root ? NONE : nodes_[id].next_sibling;
    }
}

NodeId Tree::restore(NodeId parent, const Node& like, TokenRun run) {
    assert(nodes_[parent].is_alive() && run.length > 0 && run.length % page_size == 0);
    assert(watchers_.empty());
    reserve(1, 0);
    NodeId id = nodes_.add();
    Node& node = nodes_[id];
    node.start = nodes_[parent].end();
    node.copy_facts(like);
    policy_->init(id);
    node.hold(std::move(run));
    add_child(parent, id);
    num_tails_ += node.run_offset > 0;
    count_in(node);
    return id;
}

void Tree::restore_order(uint64_t ticks, uint64_t runs) {
    ticks_ = ticks;
    runs_ = runs;
    std::vector<NodeId> all;
    for (NodeId id = 1; id < nodes_.bound(); ++id) {
        if (nodes_[id].is_alive() && nodes_[id].parent != NONE) all.push_back(id);
    }
    std::sort(all.begin(), all.end(),
              [&](NodeId a, NodeId b) { return nodes_[a].recency < nodes_[b].recency; });
    policy_->reserve(nodes_.bound(), 0);
    policy_->reserve_places(all.size());
    for (NodeId id : all) policy_->place(id);
}

}  // namespace radixkv
