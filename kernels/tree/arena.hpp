// Nodes, addressed by number and generation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace radixkv {

using NodeId = uint32_t;

// Node 0 is no node. The order of eviction uses it as the end of its list.
inline constexpr NodeId NONE = 0;

// A run of tokens with their slots. A root has no tokens and no parent.
struct Node {
    int32_t* block = nullptr;  // `capacity` tokens, then as many slots
    uint32_t length = 0;
    uint32_t capacity = 0;  // more than `length` after a trim, at most twice as much
    uint32_t start = 0;     // tokens above it
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
    uint32_t hit_count = 0;
    uint32_t order_prev = 0;  // see `EvictionOrder`
    uint32_t order_next = 0;

    int32_t* tokens() { return block; }
    const int32_t* tokens() const { return block; }
    int32_t* slots() { return block + capacity; }
    const int32_t* slots() const { return block + capacity; }
    uint32_t end() const { return start + length; }
    bool is_leaf() const { return first_child == NONE; }
    bool is_alive() const { return generation & 1; }
};

// Starts to bring `n` items into the cache.
template <class Item>
void ask_for(const Item* items, size_t n) {
    auto* at = reinterpret_cast<const char*>(items);
    for (auto* end = at + n * sizeof(Item); at < end; at += 64) __builtin_prefetch(at);
}

// The node's tokens and slots; of a long run the first, the processor then goes on by itself.
inline void ask_for_block(const Node& node) {
    uint32_t n = std::min(node.length, 512u);
    ask_for(node.tokens(), n);
    ask_for(node.slots(), n);
}

struct FreeBlock {
    void operator()(int32_t* block) const { std::free(block); }
};
using Block = std::unique_ptr<int32_t, FreeBlock>;

// Room for exactly `length` tokens and their slots.
inline Block new_block(uint32_t length) {
    auto* block = static_cast<int32_t*>(std::malloc(size_t{8} * length));
    if (!block) throw std::bad_alloc();
    return Block(block);
}

// Nodes never move: they live in chunks.
class Arena {
  public:
    Arena() { clear(); }
    ~Arena() { free_blocks(); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Node& operator[](NodeId id) { return chunks_[id >> CHUNK_BITS][id & (CHUNK - 1)]; }
    const Node& operator[](NodeId id) const { return chunks_[id >> CHUNK_BITS][id & (CHUNK - 1)]; }

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

    void remove(NodeId id) {
        Node& node = (*this)[id];
        std::free(node.block);
        node.block = nullptr;
        ++node.generation;
        node.parent = free_;
        free_ = id;
    }

    // Forgets all nodes, their generations included: who remembers nodes must know the epoch.
    void clear() {
        free_blocks();
        chunks_.clear();
        free_ = NONE;
        used_ = 1;
        reserve(1);
    }

  private:
    static constexpr unsigned CHUNK_BITS = 10;
    static constexpr NodeId CHUNK = 1u << CHUNK_BITS;

    void free_blocks() {
        for (NodeId id = 1; id < used_; ++id) std::free((*this)[id].block);
    }

    std::vector<std::unique_ptr<Node[]>> chunks_;
    NodeId free_ = NONE;
    NodeId used_ = 0;
};

}  // namespace radixkv
