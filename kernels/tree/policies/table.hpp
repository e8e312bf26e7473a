// Which policies there are.
#pragma once

#include <array>
#include <string_view>

#include "adaptive.hpp"
#include "hits_per_token.hpp"
#include "keys.hpp"
#include "lru.hpp"

namespace radixkv {

struct NamedPolicy {
    std::string_view name;
    NewPolicy make;
};

template <class Its>
std::unique_ptr<Policy> new_policy(Arena& nodes, uint32_t page_size, uint64_t seed) {
    return std::make_unique<Its>(nodes, page_size, seed);
}

// The names of `radixkv/tree/policies/__init__.py`.
inline constexpr auto POLICIES = std::to_array<NamedPolicy>({
    {"lru", new_policy<Lru>},
    {"lfu", new_policy<KeyPolicy<keys::lfu>>},
    {"fifo", new_policy<KeyPolicy<keys::fifo>>},
    {"mru", new_policy<KeyPolicy<keys::mru>>},
    {"filo", new_policy<KeyPolicy<keys::filo>>},
    {"slru", new_policy<KeyPolicy<keys::slru>>},
    {"priority", new_policy<KeyPolicy<keys::priority>>},
    {"adaptive", new_policy<Adaptive>},
    {"hits_per_token", new_policy<HitsPerToken>},
});

// nullptr where there is none of that name.
constexpr NewPolicy find_policy(std::string_view name) {
    for (const NamedPolicy& policy : POLICIES) {
        if (policy.name == name) return policy.make;
    }
    return nullptr;
}

}  // namespace radixkv
