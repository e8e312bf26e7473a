// Allocations that fail when they are told to: the linker sends the tree's malloc here (--wrap),
// and `new` comes here too.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <optional>

extern "C" void* __real_malloc(size_t size);

namespace radixkv::fuzz {

// How many allocations go well before one fails; nothing: none fails.
inline std::optional<unsigned> allocations_left;

// What the tree is asked for meanwhile may fail; what the model needs never does.
class MayFail {
  public:
    explicit MayFail(std::optional<unsigned> after) { allocations_left = after; }
    ~MayFail() { allocations_left.reset(); }
    MayFail(const MayFail&) = delete;
    MayFail& operator=(const MayFail&) = delete;
};

inline bool fails_now() {
    if (!allocations_left || (*allocations_left)-- > 0) return false;
    allocations_left.reset();
    return true;
}

}  // namespace radixkv::fuzz

extern "C" void* __wrap_malloc(size_t size) {
    return radixkv::fuzz::fails_now() ? nullptr : __real_malloc(size);
}

void* operator new(size_t size) {
    if (void* block = std::malloc(size ? size : 1)) return block;
    throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
    return std::malloc(size ? size : 1);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
