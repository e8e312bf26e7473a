// Nodes, addressed by number and generation.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "space_sizes.hpp"
#include "token_run.hpp"

namespace radixkv {

using NodeId = uint32_t;

// Node 0 stands for no node. The order of eviction uses it as the end of its list.
inline constexpr NodeId NONE = 0;

// A root has no tokens and no parent.
struct Node : TokenRun {
    uint32_t start = 0;  // tokens above it
    NodeId parent = NONE;
    NodeId first_child = NONE;
    NodeId next_sibling = NONE;
    NodeId prev_sibling = NONE;  // of a first child: the last one
    uint32_t generation = 0;     // odd while the node lives
    uint64_t recency = 0;
    uint64_t run = 0;  // of the event log
    uint32_t run_offset = 0;
    uint32_t lock_ref = 0;
    int64_t priority = 0;
    uint32_t hit_count : 31 = 0;
    uint32_t is_late : 1 = 0;  // see `AgedLeaves`
    uint32_t order_prev = 0;   // see `Policy`
    uint32_t order_next = 0;
    SpaceId space = 0;  // as its root

    uint32_t end() const { return start + length; }
    bool is_leaf() const { return first_child == NONE; }
    bool is_alive() const { return generation & 1; }

    // What is known of all tokens of a node alike.
    void copy_facts(const Node& other) {
        recency = other.recency;
        run = other.run;
        run_offset = other.run_offset;
        priority = other.priority;
        hit_count = other.hit_count;
    }
    void hold(TokenRun other) noexcept { TokenRun::operator=(std::move(other)); }
};

// Two lines of the cache: a descent asks for the first of the next node while it compares this one.
static_assert(sizeof(Node) <= 96);

// What `NodeInfo.id` says: never the same for two nodes of an epoch.
inline uint64_t public_id(const Node& node, NodeId id) {
    return uint64_t{node.generation} / 2 << 32 | id;
}

// Nodes never move: they live in chunks.
class Arena {
  public:
    Arena() { reserve(0); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Node& operator[](NodeId id) {
        assert(id < used_);
        return chunks_[id >> CHUNK_BITS][id & (CHUNK - 1)];
    }
    const Node& operator[](NodeId id) const {
        assert(id < used_);
        return chunks_[id >> CHUNK_BITS][id & (CHUNK - 1)];
    }

    // One more than the largest number in use.
    NodeId bound() const { return used_; }

    bool is_alive(NodeId id, uint32_t generation) const {
        return id < used_ && (*this)[id].generation == generation;
    }

    // Makes sure that the next `count` calls of `add` cannot fail.
    void reserve(NodeId count) {
        while (chunks_.size() << CHUNK_BITS < size_t{used_} + count) {
            chunks_.push_back(std::make_unique<Node[]>(CHUNK));
        }
    }

    NodeId add() {
        NodeId id = free_;
        if (id != NONE) {
            free_ = (*this)[id].parent;
        } else {
            reserve(1);
            id = used_++;
        }
        uint32_t generation = (*this)[id].generation + 1;
        (*this)[id] = Node{};
        (*this)[id].generation = generation;
        return id;
    }

    void remove(NodeId id) noexcept {
        Node& node = (*this)[id];
        assert(id != NONE && node.is_alive());
        node.hold(TokenRun());
        ++node.generation;
        node.parent = free_;
        free_ = id;
    }

    // Forgets all nodes, their generations included: what remembers nodes must know the epoch.
    void clear() noexcept {
        for (NodeId id = 0; id < std::min(used_, CHUNK); ++id) chunks_[0][id] = Node{};
        chunks_.resize(1);  // never more than there were
        free_ = NONE;
        used_ = 1;
    }

  private:
    static constexpr unsigned CHUNK_BITS = 10;
    static constexpr NodeId CHUNK = 1u << CHUNK_BITS;

    std::vector<std::unique_ptr<Node[]>> chunks_;
    NodeId free_ = NONE;
    NodeId used_ = 1;
};

}  // namespace radixkv
