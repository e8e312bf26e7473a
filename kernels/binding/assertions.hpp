// Whether this build checks its own invariants.
#pragma once

namespace radixkv {

// Off in the builds that people install; on under the sanitizers and the fuzzer.
#ifdef NDEBUG
inline constexpr bool HAS_ASSERTIONS = false;
#else
inline constexpr bool HAS_ASSERTIONS = true;
#endif

}  // namespace radixkv
