// Seeds that clients cannot guess.
#pragma once

#include <cstdint>
#include <random>

namespace radixkv {

inline uint64_t random_seed() {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
}

}  // namespace radixkv
