// What is cached of each namespace, kept as it changes.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "shares.hpp"

namespace radixkv {

// A number of a namespace that has a root; 0: of none.
using SpaceId = uint32_t;

// In tokens, and nodes without the root. share: that of the namespace's salt.
struct SpaceSize {
    uint64_t evictable = 0;
    uint64_t locked = 0;
    uint64_t nodes = 0;
    ShareId share = 0;

    bool operator==(const SpaceSize&) const = default;
};

class SpaceSizes {
  public:
    // Makes sure that the next call of `add` cannot fail.
    void reserve() {
        if (!free_.empty() || all_.size() < all_.capacity()) return;
        free_.reserve(2 * all_.size());  // for all that there are, when they go
        all_.reserve(2 * all_.size());
    }

    SpaceId add(ShareId share) {
        reserve();
        SpaceId id = static_cast<SpaceId>(all_.size());
        if (!free_.empty()) {
            id = free_.back();
            free_.pop_back();
        } else {
            all_.emplace_back();
        }
        all_[id].share = share;
        return id;
    }

    void remove(SpaceId id) noexcept {
        assert(id != 0 && all_[id] == (SpaceSize{0, 0, 0, all_[id].share}));
        all_[id] = {};
        free_.push_back(id);
    }

    size_t size() const { return all_.size(); }
    SpaceSize& operator[](SpaceId id) { return all_[id]; }
    const SpaceSize& operator[](SpaceId id) const { return all_[id]; }

    void clear() noexcept {
        all_.resize(1);
        free_.clear();
    }

  private:
    std::vector<SpaceSize> all_ = std::vector<SpaceSize>(1);
    std::vector<SpaceId> free_;
};

}  // namespace radixkv
