#include "tree_check.hpp"

#include <algorithm>

namespace radixkv {

class TreeCheck {
  public:
    TreeCheck(const Tree& tree, const std::vector<NodeId>& roots) : tree_(tree) {
        for (NodeId root : roots) tree.walk(root, all_);
    }

    std::vector<std::string> run(const std::vector<Lock>& locks) {
        check_sizes();
        check_shares();
        check_locks(locks);
        for (NodeId id : all_) check_shape(id);
        for (NodeId id : all_) check_order(id);
        check_slots();
        tree_.policy_->check(all_, tree_.evictable_ + tree_.protected_, lines_);
        return std::move(lines_);
    }

  private:
    using Held = std::vector<uint64_t>;  // by node

    const Node& node(NodeId id) const { return tree_.nodes_[id]; }
    bool is_root(NodeId id) const { return node(id).parent == NONE; }

    std::string name(NodeId id) const { return "node " + std::to_string(public_id(node(id), id)); }

    static std::string number(uint64_t value) { return std::to_string(value); }

    void check_sizes() {
        uint64_t evictable = 0, held = 0;
        for (NodeId id : all_) (node(id).lock_ref ? held : evictable) += node(id).length;
        if (evictable != tree_.evictable_ || held != tree_.protected_) {
            lines_.push_back("I2 sizes: evictable " + number(tree_.evictable_) + " and protected " +
                             number(tree_.protected_) + " are counted, " + number(evictable) +
                             " and " + number(held) + " are there");
        }
        if (all_.size() != tree_.num_nodes()) {
            lines_.push_back("I2 sizes: " + number(tree_.num_nodes()) + " nodes are counted, " +
                             number(all_.size()) + " are there");
        }
    }

    void check_shares() {
        std::vector<Share> there(tree_.shares_.size());
        for (NodeId id : all_) {
            Share& share = there[node(id).share];
            (node(id).lock_ref ? share.locked : share.evictable) += node(id).length;
            if (node(id).share != node(node(id).parent).share)
                lines_.push_back("I2 sizes: " + name(id) + " is of another share than its parent");
        }
        for (ShareId id = 0; id < there.size(); ++id) {
            const Share &own = there[id], &counted = tree_.shares_[id];
            if (own.evictable == counted.evictable && own.locked == counted.locked) continue;
            lines_.push_back("I2 sizes: " + pair(counted) + " tokens are counted of share " +
                             number(id) + ", " + pair(own) + " are there");
        }
    }

    static std::string pair(const Share& share) {
        return "(" + number(share.evictable) + ", " + number(share.locked) + ")";
    }

    void check_locks(const std::vector<Lock>& locks) {
        Held held(tree_.nodes_.bound());
        for (const Lock& lock : locks) hold(lock, held);
        for (NodeId id : all_) {
            if (node(id).lock_ref == held[id]) continue;
            lines_.push_back("I3 locks: " + name(id) + " has lock_ref " +
                             number(node(id).lock_ref) + ", " + number(held[id]) +
                             " handles hold it");
        }
    }

    void hold(const Lock& lock, Held& held) {
        NodeId id;
        if (!tree_.resolve(lock.place, id)) {
            lines_.push_back("I3 locks: the tokens of a locked handle of length " +
                             number(lock.place.length) + " are gone");
            return;
        }
        if (id != NONE && node(id).end() != lock.place.length) {
            lines_.push_back("I3 locks: a locked handle of length " + number(lock.place.length) +
                             " ends inside " + name(id));
        }
        for (; id != NONE && !is_root(id); id = node(id).parent) held[id] += lock.count;
    }

    void check_shape(NodeId id) {
        const Node &own = node(id), &parent = node(own.parent);
        Int32Key page{own.tokens(), tree_.page_size, true};
        if (!own.is_alive() || !is_in_table(id) || tree_.child(own.parent, page, 0) != id) {
            lines_.push_back("I7 reach: " + name(id) +
                             " is not found from its parent by its first page");
        }
        if (own.start != parent.end()) {
            lines_.push_back("I7 reach: " + name(id) + " starts at " + number(own.start) +
                             ", its parent ends at " + number(parent.end()));
        }
        if (!own.length || own.length % tree_.page_size || own.capacity() < own.length ||
            own.capacity() > 2 * own.length) {
            lines_.push_back("I7 reach: " + name(id) + " has " + number(own.length) +
                             " tokens in room for " + number(own.capacity()));
        }
        if (!is_root(own.parent)) check_against_parent(id);
    }

    bool is_in_table(NodeId id) const {
        uint32_t hash = tree_.edge_hash(node(id).parent, node(id).tokens());
        return tree_.edges_.find(hash, [&](NodeId found) { return found == id; }) == id;
    }

    void check_against_parent(NodeId id) {
        const Node &own = node(id), &parent = node(own.parent);
        if (own.recency >= parent.recency) {
            lines_.push_back("order: " + name(id) + " is not older than its parent " +
                             name(own.parent));
        }
        if (own.lock_ref > parent.lock_ref) {
            lines_.push_back("I3 locks: " + name(id) + " is locked more often than its parent " +
                             name(own.parent));
        }
    }

    void check_order(NodeId id) {
        const Policy& policy = *tree_.policy_;
        bool belongs = policy.is_evictable(id);
        if (policy.has_place(id) != belongs) {
            lines_.push_back("order: " + name(id) + (belongs ? " has no place" : " has a place"));
        } else if (belongs && !policy.is_sound(id)) {
            lines_.push_back("order: " + name(id) + " does not stand where it belongs");
        }
    }

    void check_slots() {
        std::vector<int32_t> slots;
        std::vector<bool> held;  // slots of a pool are dense
        for (NodeId id : all_) {
            slots.resize(node(id).length);
            node(id).copy_slots(0, node(id).length, slots.data());
            for (int32_t slot : slots) {
                auto at = static_cast<uint32_t>(slot);
                if (at >= held.size())
                    held.resize(std::max<size_t>(size_t{at} + 1, 2 * held.size()));
                if (held[at]) {
                    lines_.push_back("I1 partition: the tree holds slot " + std::to_string(slot) +
                                     " more than once");
                    return;
                }
                held[at] = true;
            }
        }
    }

    const Tree& tree_;
    std::vector<NodeId> all_;
    std::vector<std::string> lines_;
};

std::vector<std::string> check_tree(const Tree& tree, const std::vector<NodeId>& roots,
                                    const std::vector<Lock>& locks) {
    return TreeCheck(tree, roots).run(locks);
}

}  // namespace radixkv
