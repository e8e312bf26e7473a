// A hash of every prefix of a key, both ways: tokens can be added at the end and taken away.
// radixkv/tree/prefix_hash.py computes the same.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

namespace radixkv {

// Tokens times powers of an odd number, mod 2^32: processors add four of them at once, without
// waiting for the one before. Wide enough for a few thousand ghosts, not for more.
using PrefixHash = uint32_t;

namespace prefix_hash {

inline constexpr uint32_t STRIDE = 128;  // tokens that are added at once
inline constexpr uint32_t BASE = 0x9E3779B1, INVERSE = 0x0E8B2F51;
static_assert(BASE * INVERSE == 1);

using Powers = std::array<uint32_t, STRIDE + 1>;

// From the power STRIDE down to 0.
constexpr Powers powers(uint32_t of) {
    Powers powers{};
    powers[STRIDE] = 1;
    for (uint32_t i = STRIDE; i > 0; --i) powers[i - 1] = powers[i] * of;
    return powers;
}

inline constexpr Powers UP = powers(BASE), DOWN = powers(INVERSE);
inline constexpr uint32_t POWERS_OF_STRIDE = std::accumulate(UP.begin() + 1, UP.end(), 0u);

// What `n` tokens at the end add to a hash; fewer than STRIDE.
inline uint32_t sum(const int32_t* tokens, uint32_t n) {
    const uint32_t* power = UP.data() + STRIDE + 1 - n;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; ++i) sum += (static_cast<uint32_t>(tokens[i]) + 1) * power[i];
    return sum;
}

// The same of STRIDE tokens: sums that do not wait for one another, in registers.
inline uint32_t sum_stride(const int32_t* tokens) {
    constexpr uint32_t LANES = 16;
    std::array<uint32_t, LANES> sums{};
    for (uint32_t i = 0; i < STRIDE; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; ++lane) {
            sums[lane] += static_cast<uint32_t>(tokens[i + lane]) * UP[i + lane + 1];
        }
    }
    return std::accumulate(sums.begin(), sums.end(), POWERS_OF_STRIDE);
}

// Of a prefix and `n` more tokens.
inline PrefixHash add(PrefixHash hash, const int32_t* tokens, uint32_t n) {
    for (; n >= STRIDE; n -= STRIDE, tokens += STRIDE) hash = hash * UP[0] + sum_stride(tokens);
    return hash * UP[STRIDE - n] + sum(tokens, n);
}

// Of a prefix without its last `n` tokens.
inline PrefixHash take(PrefixHash hash, const int32_t* tokens, uint32_t n) {
    for (; n >= STRIDE; n -= STRIDE) hash = (hash - sum_stride(tokens + n - STRIDE)) * DOWN[0];
    return (hash - sum(tokens, n)) * DOWN[STRIDE - n];
}

}  // namespace prefix_hash

}  // namespace radixkv
