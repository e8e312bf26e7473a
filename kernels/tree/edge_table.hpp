// Which child of a node begins with which page: one open-addressing table for the whole tree.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <new>
#include <vector>

#include "arena.hpp"

namespace radixkv {

// Holds node numbers by the hash of (parent, first page). It compares hashes only: a look-up
// confirms with the nodes themselves.
class EdgeTable {
  public:
    // `multiplier` is odd and random, so that a client cannot choose keys that collide.
    explicit EdgeTable(uint64_t multiplier)
        : multiplier_(multiplier | 1), entries_(size_t{1} << MIN_BITS) {}

    template <class Tokens>
    uint32_t hash(NodeId parent, const Tokens& token_at, uint32_t page_size) const {
        uint64_t mixed = parent;
        for (uint32_t i = 0; i < page_size; ++i) {
            mixed = (mixed << 32 | mixed >> 32) ^ static_cast<uint32_t>(token_at(i));
            mixed *= multiplier_;
        }
        return static_cast<uint32_t>(mixed >> 32);
    }

    // The node under `hash` that `is_it(node)` confirms, or NONE.
    template <class IsIt>
    NodeId find(uint32_t hash, const IsIt& is_it) const {
        for (size_t at = home(hash); entries_[at].node != NONE; at = next(at)) {
            if (entries_[at].hash == hash && is_it(entries_[at].node)) return entries_[at].node;
        }
        return NONE;
    }

    // Makes sure that the next `count` calls of `add` cannot fail.
    void reserve(size_t count) {
        unsigned bits = bits_;
        while ((size_ + count) * 4 > size_t{3} << bits) ++bits;
        if (bits > bits_) resize(bits);
    }

    void add(uint32_t hash, NodeId node) {
        assert(node != NONE);
        reserve(1);
        put({hash, node});
        ++size_;
    }

    void replace(uint32_t hash, NodeId node, NodeId by) noexcept {
        entries_[place_of(hash, node)].node = by;
    }

    // What follows moves up, so that no gap is left that would end another node's search. `coming`:
    // calls of `add` for which room was reserved, and stays.
    void remove(uint32_t hash, NodeId node, size_t coming = 0) noexcept {
        size_t gap = place_of(hash, node);
        for (size_t at = next(gap); entries_[at].node != NONE; at = next(at)) {
            if (distance(home(entries_[at].hash), at) >= distance(gap, at)) {
                entries_[gap] = entries_[at];
                gap = at;
            }
        }
        entries_[gap].node = NONE;
        --size_;
        if ((size_ + coming) * 16 < entries_.size() && bits_ > MIN_BITS) shrink();
    }

    size_t size() const { return size_; }
    size_t num_bytes() const { return entries_.size() * sizeof(Entry); }

    void clear() noexcept {
        size_ = 0;
        bits_ = MIN_BITS;
        entries_.resize(size_t{1} << bits_);  // never more than there were
        entries_.shrink_to_fit();
        std::fill(entries_.begin(), entries_.end(), Entry{});
    }

  private:
    struct Entry {
        uint32_t hash = 0;
        NodeId node = NONE;
    };
    static_assert(sizeof(Entry) == 8);  // eight look-ups share a cache line
    static constexpr unsigned MIN_BITS = 6;

    // The upper bits of a product are its best mixed.
    size_t home(uint32_t hash) const { return hash >> (32 - bits_); }
    size_t next(size_t at) const { return (at + 1) & (entries_.size() - 1); }
    size_t distance(size_t from, size_t to) const { return (to - from) & (entries_.size() - 1); }

    size_t place_of(uint32_t hash, NodeId node) const {
        size_t at = home(hash);
        while (entries_[at].node != node) {
            assert(entries_[at].node != NONE);  // it is here
            at = next(at);
        }
        return at;
    }

    void put(Entry entry) {
        size_t at = home(entry.hash);
        while (entries_[at].node != NONE) at = next(at);
        entries_[at] = entry;
    }

    // Where there is no memory to move to, it stays as large as it is.
    void shrink() noexcept {
        try {
            resize(bits_ - 1);
        } catch (const std::bad_alloc&) {
        }
    }

    void resize(unsigned bits) {
        std::vector<Entry> old(size_t{1} << bits);
        old.swap(entries_);
        bits_ = bits;
        for (const Entry& entry : old) {
            if (entry.node != NONE) put(entry);
        }
    }

    uint64_t multiplier_;
    std::vector<Entry> entries_;
    size_t size_ = 0;
    unsigned bits_ = MIN_BITS;
};

}  // namespace radixkv
