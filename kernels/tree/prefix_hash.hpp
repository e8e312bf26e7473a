// A hash of every prefix of a key, both ways: tokens can be added at the end and taken away.
// radixkv/tree/prefix_hash.py computes the same.
#pragma once

#include <array>
#include <cstdint>

namespace radixkv {

// Tokens times powers of an odd number, mod 2^32, twice: processors add four of them at once, and
// none waits for the one before it.
struct PrefixHash {
    uint32_t low = 0;
    uint32_t high = 0;

    bool operator==(const PrefixHash&) const = default;
};

namespace prefix_hash {

inline constexpr uint32_t STRIDE = 128;  // tokens that are added at once
inline constexpr uint32_t LOW = 0x9E3779B1, LOW_INVERSE = 0x0E8B2F51;
inline constexpr uint32_t HIGH = 0x85EBCA77, HIGH_INVERSE = 0xB6C92F47;
static_assert(LOW * LOW_INVERSE == 1 && HIGH * HIGH_INVERSE == 1);

using Powers = std::array<uint32_t, STRIDE + 1>;

// From the power STRIDE down to 0.
constexpr Powers powers(uint32_t of) {
    Powers powers{};
    powers[STRIDE] = 1;
    for (uint32_t i = STRIDE; i > 0; --i) powers[i - 1] = powers[i] * of;
    return powers;
}

inline constexpr Powers LOW_POWERS = powers(LOW), HIGH_POWERS = powers(HIGH);
inline constexpr Powers LOW_DOWN = powers(LOW_INVERSE), HIGH_DOWN = powers(HIGH_INVERSE);

// What `n` tokens at the end add to a hash; at most STRIDE of them.
inline PrefixHash sum(const int32_t* tokens, uint32_t n) {
    const uint32_t* low = LOW_POWERS.data() + STRIDE + 1 - n;
    const uint32_t* high = HIGH_POWERS.data() + STRIDE + 1 - n;
    PrefixHash sum;
    for (uint32_t i = 0; i < n; ++i) {
        uint32_t token = static_cast<uint32_t>(tokens[i]) + 1;
        sum.low += token * low[i];
        sum.high += token * high[i];
    }
    return sum;
}

inline PrefixHash add_few(PrefixHash hash, const int32_t* tokens, uint32_t n) {
    PrefixHash own = sum(tokens, n);
    return {hash.low * LOW_POWERS[STRIDE - n] + own.low,
            hash.high * HIGH_POWERS[STRIDE - n] + own.high};
}

inline PrefixHash take_few(PrefixHash hash, const int32_t* tokens, uint32_t n) {
    PrefixHash own = sum(tokens, n);
    return {(hash.low - own.low) * LOW_DOWN[STRIDE - n],
            (hash.high - own.high) * HIGH_DOWN[STRIDE - n]};
}

// Of a prefix and `n` more tokens.
inline PrefixHash add(PrefixHash hash, const int32_t* tokens, uint32_t n) {
    for (; n > STRIDE; n -= STRIDE, tokens += STRIDE) hash = add_few(hash, tokens, STRIDE);
    return add_few(hash, tokens, n);
}

// Of a prefix without its last `n` tokens.
inline PrefixHash take(PrefixHash hash, const int32_t* tokens, uint32_t n) {
    for (; n > STRIDE; n -= STRIDE) hash = take_few(hash, tokens + n - STRIDE, STRIDE);
    return take_few(hash, tokens, n);
}

}  // namespace prefix_hash

}  // namespace radixkv
