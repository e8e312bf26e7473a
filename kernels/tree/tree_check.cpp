#include "tree_check.hpp"

#include <algorithm>
#include <map>
#include <new>

namespace radixkv {

namespace {

// A node with so many tokens takes as long as two without any.
constexpr uint32_t TOKENS_OF_A_NODE = 256;

std::string number(uint64_t value) { return std::to_string(value); }

std::string pair(const Share& share) {
    return "(" + number(share.evictable) + ", " + number(share.locked) + ")";
}

}  // namespace

TreeCheck::TreeCheck(const Tree& tree, IsRoot is_root, size_t num_slots, bool is_pool)
    : tree_(tree), is_root_(std::move(is_root)), is_pool_(is_pool), held_(num_slots) {
    there_.shares.resize(tree.shares_.size());
    tree.watch(*this);
}

std::string TreeCheck::name(NodeId id) const { return "node " + number(public_id(node(id), id)); }

TreeCheck::Lines TreeCheck::look(size_t count) {
    Lines lines;
    for (size_t cost = 0; cost < count && next_ < tree_.nodes_.bound(); ++cost) {
        NodeId id = next_++;
        if (!node(id).is_alive()) continue;
        check_node(id, lines);
        enters(id, 0);
        cost += node(id).length / TOKENS_OF_A_NODE;
    }
    has_seen_all_ = next_ >= tree_.nodes_.bound();  // what comes from now on is followed at once
    return lines;
}

// ---- sums ----

void TreeCheck::leaves(NodeId id, uint32_t keep) noexcept {
    const Node& own = node(id);
    if (!is_followed(id)) return;
    count(own, -1);
    for (uint32_t i = keep; i < own.length; ++i) {
        remove_slot(own.slot(i));
        count_code(own.tokens()[i], -1);
    }
}

void TreeCheck::enters(NodeId id, uint32_t known) noexcept {
    const Node& own = node(id);
    if (!is_followed(id)) return;
    count(own, 1);
    for (uint32_t i = known; i < own.length; ++i) {
        add_slot(own.slot(i));
        count_code(own.tokens()[i], 1);
    }
}

void TreeCheck::count(const Node& node, int step) noexcept {
    there_.nodes += step;
    there_.locks += int64_t{step} * node.lock_ref;
    if (node.space >= tree_.spaces_.size()) return;  // reported: its parent's is another
    try {
        if (node.space >= there_.spaces.size()) there_.spaces.resize(tree_.spaces_.size());
    } catch (const std::bad_alloc&) {
        is_void_ = true;
        return;
    }
    Share& share = there_.shares[tree_.spaces_[node.space].share];
    SpaceSize& space = there_.spaces[node.space];
    (node.lock_ref ? share.locked : share.evictable) += int64_t{step} * node.length;
    (node.lock_ref ? space.locked : space.evictable) += int64_t{step} * node.length;
    space.nodes += step;
}

void TreeCheck::count_code(int32_t code, int step) noexcept {
    if (code >= 0) return;
    try {
        auto at = codes_.try_emplace(-(code + 1) / 2).first;
        if (!(at->second += step)) codes_.erase(at);
    } catch (const std::bad_alloc&) {
        is_void_ = true;
    }
}

void TreeCheck::add_slot(int32_t slot) noexcept {
    if (slot < 0 || static_cast<size_t>(slot) >= held_.size()) {
        ++num_outside_;
        outside_ = slot;
    } else {
        if (held_[slot]) twice_ = slot;
        held_[slot] = true;
    }
}

void TreeCheck::remove_slot(int32_t slot) noexcept {
    if (slot < 0 || static_cast<size_t>(slot) >= held_.size()) {
        --num_outside_;
    } else {
        held_[slot] = false;
    }
}

TreeCheck::Lines TreeCheck::compare_sums(const std::vector<Lock>& locks) const {
    Lines lines;
    compare_sizes(lines);
    compare_shares(lines);
    compare_spaces(lines);
    compare_locks(locks, lines);
    if (twice_ >= 0) {
        lines.push_back("I1 partition: the tree holds slot " + std::to_string(twice_) +
                        " more than once");
    }
    if (is_pool_ && num_outside_) {
        lines.push_back("I1 partition: the tree holds slot " + std::to_string(outside_) +
                        ", which is not in the pool");
    }
    tree_.policy_->check_sums(tree_.evictable_ + tree_.protected_, lines);
    return lines;
}

void TreeCheck::compare_sizes(Lines& lines) const {
    uint64_t evictable = 0, locked = 0;
    for (const Share& share : there_.shares) {
        evictable += share.evictable;
        locked += share.locked;
    }
    if (evictable != tree_.evictable_ || locked != tree_.protected_) {
        lines.push_back("I2 sizes: evictable " + number(tree_.evictable_) + " and protected " +
                        number(tree_.protected_) + " are counted, " + number(evictable) + " and " +
                        number(locked) + " are there");
    }
    if (there_.nodes != tree_.num_nodes()) {
        lines.push_back("I2 sizes: " + number(tree_.num_nodes()) + " nodes are counted, " +
                        number(there_.nodes) + " are there");
    }
}

void TreeCheck::compare_shares(Lines& lines) const {
    for (ShareId id = 0; id < there_.shares.size(); ++id) {
        const Share &own = there_.shares[id], &counted = tree_.shares_[id];
        if (own.evictable == counted.evictable && own.locked == counted.locked) continue;
        lines.push_back("I2 sizes: " + pair(counted) + " tokens are counted of share " +
                        number(id) + ", " + pair(own) + " are there");
    }
}

void TreeCheck::compare_spaces(Lines& lines) const {
    for (SpaceId id = 0; id < tree_.spaces_.size(); ++id) {
        const SpaceSize& counted = tree_.spaces_[id];
        SpaceSize own = id < there_.spaces.size() ? there_.spaces[id] : SpaceSize{};
        own.share = counted.share;
        if (own == counted) continue;
        lines.push_back("I2 sizes: " + number(counted.evictable) + " evictable and " +
                        number(counted.locked) + " locked tokens in " + number(counted.nodes) +
                        " nodes are counted of a namespace, " + number(own.evictable) + " and " +
                        number(own.locked) + " in " + number(own.nodes) + " are there");
    }
}

// Only what a handle locks is looked at, unless more is locked.
void TreeCheck::compare_locks(const std::vector<Lock>& locks, Lines& lines) const {
    std::map<NodeId, uint64_t> held;
    uint64_t sum = 0;
    for (const Lock& lock : locks) {
        NodeId id;
        if (!tree_.resolve(lock.place, id)) {
            lines.push_back("I3 locks: the tokens of a locked handle of length " +
                            number(lock.place.length) + " are gone");
            continue;
        }
        if (id != NONE && node(id).end() != lock.place.length) {
            lines.push_back("I3 locks: a locked handle of length " + number(lock.place.length) +
                            " ends inside " + name(id));
        }
        for (; id != NONE && !is_root(id); id = node(id).parent) {
            held[id] += lock.count;
            sum += lock.count;
        }
    }
    auto compare = [&](NodeId id, uint64_t count) {
        if (node(id).lock_ref == count) return;
        lines.push_back("I3 locks: " + name(id) + " has lock_ref " + number(node(id).lock_ref) +
                        ", " + number(count) + " handles hold it");
    };
    for (auto [id, count] : held) compare(id, count);
    if (sum == there_.locks) return;
    for (NodeId id = 1; id < tree_.nodes_.bound(); ++id) {
        if (node(id).is_alive() && !is_root(id) && !held.contains(id)) compare(id, 0);
    }
}

// ---- one node ----

void TreeCheck::check_node(NodeId id, Lines& lines) const {
    if (is_root(id)) {
        if (node(id).is_leaf() || !is_root_(id))
            lines.push_back("I7 reach: " + name(id) + " is the root of no namespace");
        return;
    }
    NodeId parent = node(id).parent;
    if (parent >= tree_.nodes_.bound() || !node(parent).is_alive()) {
        lines.push_back("I7 reach: " + name(id) + " is below a node that is gone");
        return;
    }
    check_shape(id, lines);
    check_place(id, lines);
    check_against_parent(id, lines);
    check_order(id, lines);
    tree_.policy_->check_node(id, lines);
}

void TreeCheck::check_shape(NodeId id, Lines& lines) const {
    const Node& own = node(id);
    if (own.length && own.length % tree_.page_size == 0 && own.capacity() >= own.length &&
        own.capacity() <= 2 * own.length)
        return;
    lines.push_back("I7 reach: " + name(id) + " has " + number(own.length) +
                    " tokens in room for " + number(own.capacity()));
}

void TreeCheck::check_place(NodeId id, Lines& lines) const {
    const Node &own = node(id), &parent = node(own.parent);
    if (!is_linked(id)) {
        lines.push_back("I7 reach: " + name(id) + " is not among the children of its parent");
    }
    if (!is_found(id)) {
        lines.push_back("I7 reach: " + name(id) +
                        " is not found from its parent by its first page");
    }
    if (own.start != parent.end()) {
        lines.push_back("I7 reach: " + name(id) + " starts at " + number(own.start) +
                        ", its parent ends at " + number(parent.end()));
    }
}

// Whether both neighbours in the list of children, or its ends, lead here.
bool TreeCheck::is_linked(NodeId id) const {
    const Node &own = node(id), &parent = node(own.parent);
    bool is_first = parent.first_child == id;
    NodeId after = own.next_sibling == NONE ? parent.first_child : own.next_sibling;
    auto is_sibling = [&](NodeId other) {
        return other != NONE && other < tree_.nodes_.bound() && node(other).is_alive() &&
               node(other).parent == own.parent;
    };
    return is_sibling(own.prev_sibling) && is_sibling(after) &&
           node(own.prev_sibling).next_sibling == (is_first ? NONE : id) &&
           node(after).prev_sibling == id;
}

bool TreeCheck::is_found(NodeId id) const {
    const Node& own = node(id);
    uint32_t hash = tree_.edge_hash(own.parent, own.tokens());
    Int32Key page{own.tokens(), tree_.page_size, true};
    return tree_.edges_.find(hash, [&](NodeId found) { return found == id; }) == id &&
           tree_.child(own.parent, page, 0) == id;
}

void TreeCheck::check_against_parent(NodeId id, Lines& lines) const {
    const Node &own = node(id), &parent = node(own.parent);
    if (own.space != parent.space)
        lines.push_back("I2 sizes: " + name(id) + " is of another namespace than its parent");
    if (is_root(own.parent)) return;
    if (own.recency >= parent.recency) {
        lines.push_back("order: " + name(id) + " is not older than its parent " + name(own.parent));
    }
    if (own.lock_ref > parent.lock_ref) {
        lines.push_back("I3 locks: " + name(id) + " is locked more often than its parent " +
                        name(own.parent));
    }
}

void TreeCheck::check_order(NodeId id, Lines& lines) const {
    const Policy& policy = *tree_.policy_;
    bool belongs = policy.is_evictable(id);
    if (policy.has_place(id) != belongs) {
        lines.push_back("order: " + name(id) + (belongs ? " has no place" : " has a place"));
    } else if (belongs && !policy.is_sound(id)) {
        lines.push_back("order: " + name(id) + " does not stand where it belongs");
    }
}

// ---- all at once ----

std::vector<std::string> check_tree(const Tree& tree, const std::vector<NodeId>& roots,
                                    const std::vector<Lock>& locks, size_t num_slots) {
    auto is_root = [&](NodeId id) {
        return std::find(roots.begin(), roots.end(), id) != roots.end();
    };
    TreeCheck check(tree, is_root, num_slots);
    std::vector<std::string> lines = check.look(SIZE_MAX);
    std::vector<std::string> sums = check.compare_sums(locks);
    lines.insert(lines.end(), sums.begin(), sums.end());
    return lines;
}

}  // namespace radixkv
