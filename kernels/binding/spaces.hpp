// Namespaces and the roots of their trees.
#pragma once

#include <unordered_map>

#include "python.hpp"
#include "tree/tree.hpp"

namespace radixkv {

// A namespace has a root while anything is cached under it. The default one and the one asked for
// last are known by identity; the others by the tuple of their fields, because the hash of a
// dataclass is computed in Python.
class Spaces {
  public:
    // share_of: numbers of shares by salt; a salt that is not there has number 0.
    Spaces(Tree& tree, nb::dict share_of) : tree_(tree), share_of_(std::move(share_of)) {}

    // Raises InvalidNamespaceError unless it is a Namespace.
    static void check(nb::handle space);

    // NONE where nothing is cached.
    NodeId find(nb::handle space);

    NodeId find_or_add(nb::handle space);

    // None: of no share. Raises InvalidNamespaceError for what else is no Namespace.
    ShareId share_of(nb::handle space) const;

    const nb::dict& shares() const { return share_of_; }

    void remove(NodeId root);
    void clear();

    size_t size() const { return by_root_.size(); }
    bool has_root(NodeId root) const { return by_root_.contains(root); }

    // In the order in which they came.
    std::vector<NodeId> roots() const;

    const nb::object& space_of(NodeId root) const { return by_root_.at(root).space; }

  private:
    struct Space {
        nb::object key;
        nb::object space;
    };

    void remember(nb::handle space, NodeId root);

    Tree& tree_;
    const nb::dict share_of_;
    nb::dict by_key_;  // key -> root, in order
    std::unordered_map<NodeId, Space> by_root_;
    NodeId default_root_ = NONE;
    nb::object last_;
    NodeId last_root_ = NONE;
};

}  // namespace radixkv
