// Every allocation of every call of the holdings fails once: the call then has changed nothing, and
// the same call again does what it ought to.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <sstream>

#include "router/holdings.hpp"

namespace {
long left = -1;  // allocations until one fails; -1: none does

bool fails() { return left >= 0 && left-- == 0; }
}  // namespace

extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_realloc(void*, size_t);
extern "C" void* malloc(size_t n) { return fails() ? nullptr : __libc_malloc(n); }
extern "C" void* realloc(void* p, size_t n) { return fails() ? nullptr : __libc_realloc(p, n); }
void* operator new(size_t n) {
    void* p = malloc(n ? n : 1);
    if (!p) throw std::bad_alloc();
    return p;
}
void operator delete(void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }

namespace radixkv {

struct Case {
    const char* name;
    std::function<void(Holdings&)> call;
};

bool store(Holdings& in, uint32_t holder, uint64_t run, uint64_t parent, uint32_t offset,
           std::vector<int32_t> codes) {
    Int32Key key{codes.data(), static_cast<uint32_t>(codes.size()), true};
    return in.store(holder, run, parent, offset, key, 1);
}

// Root 1; holders 0 and 1 of tokens, 2 of pages of four.
void begin(Holdings& in, int32_t leaves) {
    in.add_root();
    for (uint32_t page : {1, 1, 4}) in.add_holder(page);
    store(in, 0, 1, 0, 0, {1, 2, 3, 4, 5, 6, 7, 8});
    store(in, 1, 1, 0, 0, {1, 2, 3, 4});
    store(in, 1, 2, 1, 4, {5, 9});
    store(in, 2, 1, 0, 0, {1, 2, 3, 4});
    store(in, 2, 2, 0, 0, {1, 2, 7, 7});
    for (int32_t at = 0; at < leaves; ++at) store(in, 0, at + 10, 0, 0, {at + 100});
}

const Case CASES[] = {
    {"a new leaf", [](auto& in) { store(in, 0, 2, 0, 0, {7, 7}); }},
    {"a split and a leaf", [](auto& in) { store(in, 1, 3, 1, 3, {8, 8, 8}); }},
    {"a leaf that grows", [](auto& in) { store(in, 1, 3, 2, 2, std::vector<int32_t>(40, 3)); }},
    {"what joins nodes", [](auto& in) { store(in, 1, 3, 2, 1, {6, 7, 8}); }},
    {"a page that begins alike", [](auto& in) { store(in, 2, 3, 0, 0, {1, 2, 3, 5}); }},
    {"content", [](auto& in) { store(in, 0, 2, 1, 2, {-4, 5}); }},
    {"a trim", [](auto& in) { in.trim(0, 1, 5); }},
    {"a trim to nothing", [](auto& in) { in.trim(2, 1, 0); }},
    {"a trim that joins nodes", [](auto& in) { in.trim(1, 2, 0); }},
    {"clear", [](auto& in) { in.clear(0); }},
    {"a new holder", [](auto& in) { in.add_holder(1); }},
    {"a holder that goes", [](auto& in) { in.remove_holder(2); }},
    {"a new root", [](auto& in) { in.add_root(); }},
};

std::string shown(const Holdings& in) {
    std::ostringstream out;
    out << in.num_holders() << ' ' << in.total_size();
    for (uint32_t holder = 0; holder < 3; ++holder) {
        try {
            out << "\nholder " << in.num_tokens(holder);
        } catch (const std::out_of_range&) {
            continue;
        }
        in.each_run(holder, [&](const HeldRun& run) {
            std::vector<int32_t> codes(run.length);
            in.copy_codes(run, codes.data());
            out << '\n' << run.number << ' ' << in.run(run.parent).number << ' ' << run.offset;
            for (int32_t code : codes) out << ' ' << code;
        });
    }
    return out.str();
}

// Whether the call met the failure of allocation `n`.
bool try_it(const Case& one, long n, int32_t leaves = 0) {
    Holdings in(3), expected(3);
    begin(in, leaves);
    begin(expected, leaves);
    std::string before = shown(in);
    one.call(expected);
    bool has_failed = false;
    left = n;
    try {
        one.call(in);
    } catch (const std::bad_alloc&) {
        has_failed = true;
    }
    bool was_met = left < 0;
    left = -1;
    if (has_failed && shown(in) != before) {
        std::printf("%s, allocation %ld: something changed\n", one.name, n);
        std::exit(1);
    }
    if (has_failed) one.call(in);
    if (shown(in) != shown(expected) || !in.check().empty()) {
        std::printf("%s, allocation %ld: not what it ought to be: %s\n", one.name, n,
                    in.check().empty() ? shown(in).c_str() : in.check()[0].c_str());
        std::exit(1);
    }
    return was_met;
}

}  // namespace radixkv

int main() {
    using radixkv::try_it;
    for (const auto& one : radixkv::CASES) {
        long n = 0;
        while (try_it(one, n)) ++n;
        std::printf("%s: %ld\n", one.name, n);
    }
    // After some of so many leaves a table or a pool grows.
    long met = 0;
    for (int32_t leaves = 750; leaves < 1030; leaves += leaves == 780 ? 220 : 1) {
        for (long n = 0; try_it(radixkv::CASES[0], n, leaves); ++n) ++met;
    }
    std::printf("one leaf more: %ld\n", met);
}
