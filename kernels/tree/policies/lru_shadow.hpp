// What LRU would hold in the place of another policy, and how far that one may differ.
// radixkv/tree/policies/lru_shadow.py says how, and why that is enough.
#pragma once

#include <cstdint>
#include <vector>

#include "saved_state.hpp"

namespace radixkv {

// The tokens that LRU would hold, by when they were last used.
class LruShadow {
  public:
    LruShadow() {
        cells_.reserve(MOST_CELLS + 1);
        clear();
    }

    // A request begins at a time later than all before.
    void begin(uint64_t now);

    // So many tokens of the request.
    void add(uint64_t tokens, int64_t price = 1) {
        cells_.back().tokens += tokens;
        size_ += tokens;
        credit_ += price * static_cast<int64_t>(tokens);
    }

    // The same for the first request, all of which is credit.
    void add_first(uint64_t tokens) { add(tokens, PROMPT_TOKENS_A_TOKEN); }

    // The same for a part of a prompt: the credit comes with the whole.
    void add_chunk(uint64_t tokens) { add(tokens, 0); }

    // Tokens that are cached here are used again.
    void use(uint64_t used, uint64_t tokens) {
        credit_ += PROMPT_TOKENS_A_TOKEN * static_cast<int64_t>(tokens - take(used, tokens));
    }

    // Tokens that are gone here are asked for.
    void use_gone(uint64_t used, uint64_t tokens);

    // Tokens leave the place of their last use; returns how many LRU held there.
    uint64_t take(uint64_t used, uint64_t tokens);

    // Tokens are evicted here.
    void lose(uint64_t used, uint64_t tokens) {
        if (!holds(used)) return;
        cell(used).gone += tokens;
        debt_ += tokens;
    }

    // Whether LRU still holds tokens used then.
    bool holds(uint64_t used) const { return used >= cells_[0].first; }

    // LRU evicts until it holds `size` tokens.
    void shrink(uint64_t size);

    // Whether the credit covers the debt and so many tokens more.
    bool may_lose(uint64_t tokens) const {
        uint64_t credit =
            credit_ > 0 ? static_cast<uint64_t>(credit_ / PROMPT_TOKENS_A_TOKEN) : uint64_t{0};
        uint64_t known = room_ + 1;
        unsigned __int128 part = due_ + expired_ + known;  // the product may be above 2**64
        return debt_ + tokens <= credit * part / (due_ + known);
    }

    // The state as numbers, and back.
    void save(std::vector<uint64_t>& out) const;
    void load(SavedState& in);

    void clear() noexcept;

  private:
    static constexpr size_t MOST_CELLS = 1024;
    static constexpr uint64_t JOINED_CELLS = 256;
    static constexpr int64_t PROMPT_TOKENS_A_TOKEN = 4096;
    static constexpr int64_t MOST_CREDIT = 4;

    // Tokens last used at a time from `first` on; `gone`: so many of them are not cached here.
    struct Cell {
        uint64_t first;
        uint64_t tokens;
        uint64_t gone;
    };

    void join();
    Cell& cell(uint64_t used);

    std::vector<Cell> cells_;
    uint64_t lost_, size_, debt_, due_, expired_, room_;
    int64_t credit_;
};

}  // namespace radixkv
