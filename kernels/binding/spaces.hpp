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
    explicit Spaces(Tree& tree) : tree_(tree) {}

    // Raises InvalidNamespaceError unless it is a Namespace.
    static void check(nb::handle space);

    // NONE where nothing is cached.
    NodeId find(nb::handle space);

    NodeId find_or_add(nb::handle space);

    void remove(NodeId root);
    void clear();

    size_t size() const { return by_root_.size(); }

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
    nb::dict by_key_;  // key -> root, in order
    std::unordered_map<NodeId, Space> by_root_;
    NodeId default_root_ = NONE;
    nb::object last_;
    NodeId last_root_ = NONE;
};

}  // namespace radixkv
