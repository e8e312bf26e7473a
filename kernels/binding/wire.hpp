// Token ids in protobuf messages.
#pragma once

#include "python.hpp"

namespace radixkv {

// The ids of every submessage in field `sequences` of `message`, each as an int32 array, where it
// has nothing but its bytes in field `packed`, and they are token ids. None for any other message:
// protobuf reads it, and reports what is wrong.
nb::object read_message_ids(nb::bytes message, uint32_t sequences, uint32_t packed);

}  // namespace radixkv
