// Loaded before a process: the n-th allocation that the native core asks for fails, once.
// What the interpreter and NumPy ask for does not: the core is known by where its code lies.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

extern "C" void* __libc_malloc(size_t size);
extern "C" void* __libc_realloc(void* block, size_t size);

static uintptr_t begin, end;
static long left = -1;  // allocations until the one that fails; -1: none fails
static int has_failed;

extern "C" void failing_code(uintptr_t from, uintptr_t to) { begin = from, end = to; }
extern "C" void failing_arm(long after) { has_failed = 0, left = after; }
extern "C" int failing_disarm() {
    left = -1;
    return has_failed;
}

static bool fails(void* caller) {
    auto at = reinterpret_cast<uintptr_t>(caller);
    if (left < 0 || at < begin || at >= end || left-- > 0) return false;
    has_failed = 1;
    return true;
}

static void* new_block(size_t size, void* caller) {
    void* block = fails(caller) ? nullptr : __libc_malloc(size ? size : 1);
    if (!block) throw std::bad_alloc();
    return block;
}

extern "C" void* malloc(size_t size) {
    return fails(__builtin_return_address(0)) ? nullptr : __libc_malloc(size);
}
extern "C" void* realloc(void* block, size_t size) {
    return fails(__builtin_return_address(0)) ? nullptr : __libc_realloc(block, size);
}

void* operator new(size_t size) { return new_block(size, __builtin_return_address(0)); }
void* operator new[](size_t size) { return new_block(size, __builtin_return_address(0)); }
void operator delete(void* block) noexcept { free(block); }
void operator delete[](void* block) noexcept { free(block); }
void operator delete(void* block, size_t) noexcept { free(block); }
void operator delete[](void* block, size_t) noexcept { free(block); }
