// Every invariant of a tree, checked the slow way: from the nodes up, trusting no counter.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tree.hpp"

namespace radixkv {

struct Lock {
    Place place;
    uint64_t count;
};

// A few nodes at a time, between which the tree may change.
//
// What is true of a node and its neighbours at every moment is checked when its turn comes. Sums
// over all nodes are kept for those whose turn has come, whatever happens to them later, so that
// they hold at the moment at which the last has come, and at every moment after it. So what is
// sound is never reported, and what is broken from before the first node to after the last always
// is.
class TreeCheck final : public NodeWatcher {
  public:
    using Lines = std::vector<std::string>;
    using IsRoot = std::function<bool(NodeId)>;

    // is_root: of a root, whether it is that of a namespace. num_slots: slots from there on are not
    // looked at, and where that `is_pool`, they are wrong.
    TreeCheck(const Tree& tree, IsRoot is_root, size_t num_slots, bool is_pool = true);
    ~TreeCheck() override { tree_.unwatch(*this); }
    TreeCheck(const TreeCheck&) = delete;
    TreeCheck& operator=(const TreeCheck&) = delete;

    // The turn of the next nodes, `count` of them or fewer where they are long. A line for each
    // invariant that is broken.
    Lines look(size_t count);

    // Whether each node has had its turn.
    bool has_seen_all() const { return has_seen_all_; }

    // What the sums of all nodes are to be. locks: of all handles.
    Lines compare_sums(const std::vector<Lock>& locks) const;

    // Whether the tree was cleared, or there was no memory to follow it.
    bool is_void() const { return is_void_; }

    // Of the nodes that had their turn: content codes by number, and which slots are theirs.
    const std::unordered_map<int32_t, uint64_t>& codes() const { return codes_; }
    bool holds(size_t slot) const { return slot < held_.size() && held_[slot]; }

    // ---- what changes meanwhile ----

    void leaves(NodeId id, uint32_t keep) noexcept override;
    void enters(NodeId id, uint32_t known) noexcept override;
    void forgets_all() noexcept override { is_void_ = true; }

  private:
    struct Sums {
        uint64_t nodes = 0, locks = 0;
        std::vector<Share> shares;
        std::vector<SpaceSize> spaces;
    };

    const Node& node(NodeId id) const { return tree_.nodes_[id]; }
    bool is_root(NodeId id) const { return node(id).parent == NONE; }
    bool is_followed(NodeId id) const { return (has_seen_all_ || id < next_) && !is_root(id); }
    std::string name(NodeId id) const;
    void count(const Node& node, int step) noexcept;
    void count_code(int32_t code, int step) noexcept;
    void add_slot(int32_t slot) noexcept;
    void remove_slot(int32_t slot) noexcept;

    void check_node(NodeId id, Lines& lines) const;
    void check_shape(NodeId id, Lines& lines) const;
    void check_place(NodeId id, Lines& lines) const;
    bool is_linked(NodeId id) const;
    bool is_found(NodeId id) const;
    void check_against_parent(NodeId id, Lines& lines) const;
    void check_order(NodeId id, Lines& lines) const;
    void compare_sizes(Lines& lines) const;
    void compare_shares(Lines& lines) const;
    void compare_spaces(Lines& lines) const;
    void compare_locks(const std::vector<Lock>& locks, Lines& lines) const;

    const Tree& tree_;
    const IsRoot is_root_;
    const bool is_pool_;
    NodeId next_ = 1;  // all before it had their turn
    bool has_seen_all_ = false;
    Sums there_;
    std::unordered_map<int32_t, uint64_t> codes_;
    std::vector<bool> held_;  // by slot
    int64_t num_outside_ = 0;
    int32_t outside_ = 0;  // one of them
    int32_t twice_ = -1;   // a slot that two nodes hold
    bool is_void_ = false;
};

// All of it at once; num_slots: one more than the largest slot.
std::vector<std::string> check_tree(const Tree& tree, const std::vector<NodeId>& roots,
                                    const std::vector<Lock>& locks, size_t num_slots);

}  // namespace radixkv
