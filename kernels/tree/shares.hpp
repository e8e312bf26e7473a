// What the namespaces of one salt may count on; radixkv/tree/shares.py says what that is.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <vector>

namespace radixkv {

// A number of a share; 0: of all namespaces that have none of their own.
using ShareId = uint16_t;

// Of a caller that belongs to none.
inline constexpr ShareId NO_SHARE = UINT16_MAX;

// In tokens, whole pages. evictable, locked: what is cached of it.
struct Share {
    uint64_t reserve = 0;
    uint64_t cap = UINT64_MAX;
    uint64_t evictable = 0;
    uint64_t locked = 0;

    uint64_t size() const { return evictable + locked; }

    // What may be evicted for others.
    uint64_t spare() const { return size() > reserve ? std::min(evictable, size() - reserve) : 0; }

    // What is to be evicted so that `coming` more tokens stay within the cap.
    uint64_t beyond_cap(uint64_t coming) const {
        return size() + coming > cap ? std::min(evictable, size() + coming - cap) : 0;
    }
};

// For which share tokens are evicted, and how many of them its own come first.
struct Claim {
    ShareId share = NO_SHARE;
    uint64_t own = 0;
};

// All shares of a tree, and what is cached of each. Nothing here allocates but the constructor.
class Shares {
  public:
    // The first is that of all namespaces without one of their own.
    explicit Shares(std::vector<Share> all = {Share{}}) : all_(std::move(all)) {
        assert(!all_.empty() && all_.size() < NO_SHARE);
    }

    // Whether any namespaces have a share of their own.
    bool is_set() const { return all_.size() > 1; }
    size_t size() const { return all_.size(); }
    const Share& operator[](ShareId id) const {
        assert(id < all_.size());
        return all_[id];
    }

    void add(ShareId id, uint64_t count) { all_[id].evictable += count; }

    void evict(ShareId id, uint64_t count) {
        assert(count <= all_[id].evictable);
        all_[id].evictable -= count;
    }

    // `count` tokens are locked from now on, or were until now (count < 0).
    void lock(ShareId id, int64_t count) {
        all_[id].locked += count;
        all_[id].evictable -= count;
    }

    // What eviction can free for a caller of that share, of a tree with `evictable` tokens.
    uint64_t room_for(ShareId whom, uint64_t evictable) const {
        if (!is_set()) return evictable;
        uint64_t room = 0;
        for (const Share& share : all_) room += share.spare();
        return whom == NO_SHARE ? room : room - all_[whom].spare() + all_[whom].evictable;
    }

    // To free `missing` of `wanted` tokens, which are going to be cached.
    Claim claim(ShareId whom, uint64_t wanted, uint64_t missing) const {
        if (whom == NO_SHARE || !is_set()) return {};
        return {whom, std::min(missing, all_[whom].beyond_cap(wanted))};
    }

    // Nothing is cached any more.
    void clear() {
        for (Share& share : all_) share.evictable = share.locked = 0;
    }

  private:
    std::vector<Share> all_;
};

}  // namespace radixkv
