// Who holds each slot that is neither free nor in the tree.
#pragma once

#include <cstddef>
#include <cstdint>

namespace radixkv {

using std::size_t;

// See radixkv/ledger.py. Slots are in the pool: whoever calls has checked that.
class SlotLedger {
  public:
    // Both arrays have an item for each slot of the pool, page 0 included.
    SlotLedger(int32_t* holders, uint8_t* is_retired)
        : holders_(holders), is_retired_(is_retired) {}

    // One request holds them, who were free.
    void take(const int32_t* slots, size_t n) {
        for (size_t i = 0; i < n; ++i) holders_[slots[i]] = 1;
    }

    // The tree owns them now.
    void hand_over(const int32_t* slots, size_t n) {
        for (size_t i = 0; i < n; ++i) holders_[slots[i]] = 0;
    }

    // A request holds them no more. Those that nobody holds now come first in `slots` then; how
    // many these are.
    size_t give_back(int32_t* slots, size_t n) {
        size_t done = 0;
        for (size_t i = 0; i < n; ++i) {
            int32_t slot = slots[i];
            if (--holders_[slot]) continue;
            is_retired_[slot] = false;
            slots[done++] = slot;
        }
        return done;
    }

  private:
    int32_t* holders_;
    uint8_t* is_retired_;
};

}  // namespace radixkv
