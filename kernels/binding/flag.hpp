// Arguments that are True or False, each named where it is something else: nanobind's own error
// for a bool names the types of the whole call.
#pragma once

#include <algorithm>

#include "python.hpp"

namespace radixkv {

template <size_t SIZE>
struct ArgumentName {
    char text[SIZE];
    constexpr ArgumentName(const char (&name)[SIZE]) { std::copy_n(name, SIZE, text); }
};

template <ArgumentName NAME>
struct Flag {
    bool value;
    operator bool() const { return value; }
};

using Checked = Flag<"checked">;
using Chunked = Flag<"chunked">;

}  // namespace radixkv

namespace nanobind::detail {

template <radixkv::ArgumentName NAME>
struct type_caster<radixkv::Flag<NAME>> {
    using Value = radixkv::Flag<NAME>;
    static constexpr auto Name = const_name("bool");
    template <class>
    using Cast = Value;
    template <class>
    static constexpr bool can_cast() {
        return true;
    }

    bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
        source_ = source;
        return true;
    }

    // Raises InvalidArgumentError.
    explicit operator Value() const {
        if (source_.ptr() == Py_True) return {true};
        if (source_.ptr() == Py_False) return {false};
        return {cast<bool>(radixkv::python().as_flag(source_, NAME.text))};
    }

  private:
    handle source_;
};

}  // namespace nanobind::detail
