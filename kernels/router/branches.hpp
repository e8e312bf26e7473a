// Where runs of one holder part inside a page.
#pragma once

#include <cassert>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "tree/arena.hpp"

namespace radixkv {

// Two pages behind the same one may begin with the same tokens. Of a holder that has both, the
// nodes of those tokens belong to more than one run. At the node where they part, this counts the
// runs beyond the first; what gives up one of them stops there.
class Branches {
  public:
    using Counts = std::unordered_map<uint64_t, uint32_t>;

    // Makes sure that the next call of `add` cannot fail.
    void reserve() {
        counts_.reserve(counts_.size() + 1);
        if (spare_.empty()) {
            Counts one{{0, 0}};
            spare_ = one.extract(one.begin());
        }
    }

    void add(uint32_t holder, NodeId node) {
        auto found = counts_.find(key(holder, node));
        if (found != counts_.end()) {
            found->second += 1;
            return;
        }
        assert(!spare_.empty());
        spare_.key() = key(holder, node);
        spare_.mapped() = 1;
        counts_.insert(std::move(spare_));
    }

    // Whether the holder has other runs that go on below the node; one fewer from now on.
    bool leave(uint32_t holder, NodeId node) {
        auto found = counts_.find(key(holder, node));
        if (found == counts_.end()) return false;
        if (--found->second == 0) counts_.erase(found);
        return true;
    }

    size_t num_bytes() const {  // as nodes of a list, and a pointer for each bucket
        constexpr size_t NODE = sizeof(Counts::value_type) + 2 * sizeof(void*);
        return counts_.size() * NODE + counts_.bucket_count() * sizeof(void*);
    }

    static uint64_t key(uint32_t holder, NodeId node) { return uint64_t{holder} << 32 | node; }
    const Counts& counts() const { return counts_; }

  private:
    Counts counts_;
    Counts::node_type spare_;
};

}  // namespace radixkv
