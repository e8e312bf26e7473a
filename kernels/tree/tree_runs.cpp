// What is resident, run by run, of a tree that may change between one run and the next.
#include <algorithm>

#include "tree.hpp"

namespace radixkv {

std::vector<Place> Tree::run_ends() const {
    // A run's nodes are a path: its last one has no child of the same run.
    std::vector<bool> goes_on(nodes_.bound());
    auto each = [&](auto use) {
        for (NodeId id = 1; id < nodes_.bound(); ++id) {
            if (nodes_[id].is_alive() && nodes_[id].parent != NONE) use(id, nodes_[id]);
        }
    };
    each([&](NodeId, const Node& node) {
        if (nodes_[node.parent].run == node.run) goes_on[node.parent] = true;
    });
    std::vector<Place> ends;
    each([&](NodeId id, const Node& node) {
        if (!goes_on[id]) ends.push_back(place(id, node.end()));
    });
    return ends;
}

// The end's node keeps its identity when it is split. Where it is gone, what is left of the run
// ends at the node that lost it.
void Tree::run_path(const Place& end, Path& path) const {
    path.clear();
    NodeId id = end.node;
    if (!nodes_.is_alive(id, end.generation)) id = cut_end(end.run);
    for (; id != NONE && nodes_[id].run == end.run; id = nodes_[id].parent) path.push_back(id);
    std::reverse(path.begin(), path.end());
}

}  // namespace radixkv
