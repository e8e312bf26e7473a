// Every invariant of a tree, checked the slow way: from the nodes up, trusting no counter.
#pragma once

#include <string>
#include <vector>

#include "tree.hpp"

namespace radixkv {

struct Lock {
    Place place;
    uint64_t count;
};

// One line for each broken invariant.
std::vector<std::string> check_tree(const Tree& tree, const std::vector<NodeId>& roots,
                                    const std::vector<Lock>& locks);

}  // namespace radixkv
