// What was evicted recently.
#pragma once

#include <cassert>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "../edge_table.hpp"
#include "../prefix_hash.hpp"

namespace radixkv {

// A prefix that was cached, what was known of its last token, and for how many tokens it stands.
struct Ghost {
    PrefixHash hash = 0;
    uint64_t used = 0;
    uint32_t kind = 0;
    uint32_t tokens = 0;
};

static_assert(std::is_trivially_copyable_v<Ghost>);

// Ghosts in the order in which they came, found by the hash of the prefix.
class Ghosts {
  public:
    explicit Ghosts(uint64_t seed) : table_(seed), items_(1) {}

    // For which all of them stand.
    uint64_t tokens() const { return tokens_; }

    // Makes sure that the next `add` cannot fail. The table is half as full as one of edges: most
    // look-ups find nothing, and go on to the next gap.
    void reserve() {
        table_.reserve(table_.size() + 1);
        if (free_ == NONE && items_.size() == items_.capacity()) items_.reserve(2 * items_.size());
    }

    // No ghost of that prefix may be there.
    void add(const Ghost& ghost) {
        reserve();
        uint32_t at = free_;
        if (at != NONE) {
            free_ = items_[at].next;
        } else {
            at = static_cast<uint32_t>(items_.size());
            items_.emplace_back();
        }
        uint32_t newest = items_[NONE].prev;
        items_[at] = {ghost, NONE, newest};
        items_[newest].next = items_[NONE].prev = at;
        table_.add(short_hash(ghost.hash), at);
        tokens_ += ghost.tokens;
    }

    // Takes the ghost of that prefix; false if there is no such ghost.
    bool take(PrefixHash hash, Ghost& ghost) {
        auto is_it = [&](uint32_t id) { return items_[id].ghost.hash == hash; };
        uint32_t at = table_.find(short_hash(hash), is_it);
        if (at != NONE) ghost = remove(at);
        return at != NONE;
    }

    // The oldest; there must be one.
    Ghost take_oldest() {
        assert(items_[NONE].next != NONE);
        return remove(items_[NONE].next);
    }

    // From the oldest on.
    template <class Visit>
    void each(const Visit& visit) const {
        for (uint32_t at = items_[NONE].next; at != NONE; at = items_[at].next)
            visit(items_[at].ghost);
    }

    void clear() noexcept {
        table_.clear();
        items_.resize(1);
        items_.shrink_to_fit();
        items_[NONE] = Item{};
        free_ = NONE;
        tokens_ = 0;
    }

  private:
    // Item 0 is the end of the list.
    struct Item {
        Ghost ghost;
        uint32_t next = NONE;
        uint32_t prev = NONE;
    };

    Ghost remove(uint32_t at) {
        Item& item = items_[at];
        table_.remove(short_hash(item.ghost.hash), at);
        items_[item.prev].next = item.next;
        items_[item.next].prev = item.prev;
        item.next = free_;
        free_ = at;
        tokens_ -= item.ghost.tokens;
        return item.ghost;
    }

    // With the seed of the table: a client cannot choose prefixes that collide here.
    uint32_t short_hash(PrefixHash hash) const {
        return table_.hash(NONE, [&](uint32_t) { return hash; }, 1);
    }

    EdgeTable table_;
    std::vector<Item> items_;
    uint32_t free_ = NONE;
    uint64_t tokens_ = 0;
};

}  // namespace radixkv
