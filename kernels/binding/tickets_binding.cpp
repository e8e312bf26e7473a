#include "tickets_binding.hpp"

#include "input.hpp"

namespace radixkv {

using namespace nb::literals;

namespace {

uint32_t checked_size(nb::handle num_tickets) {
    return nb::cast<uint32_t>(python().between(0, INT32_MAX, "num_tickets"_a = num_tickets));
}

}  // namespace

TicketsBinding::TicketsBinding(nb::handle num_tickets) : ring_(checked_size(num_tickets)) {}

nb::object TicketsBinding::take(nb::handle n) {
    auto wanted = nb::cast<uint64_t>(python().at_least(0, "n"_a = n));
    if (wanted > ring_.free_size()) return nb::none();
    int32_t* out;
    nb::object tickets = new_array(wanted, out);
    ring_.peek(static_cast<uint32_t>(wanted), out);
    ring_.take(out, static_cast<uint32_t>(wanted));
    return tickets;
}

void TicketsBinding::free(nb::handle tickets) {
    Slots given(tickets, false, "tickets");
    free(given.items(), given.size());
}

void TicketsBinding::free(const int32_t* tickets, size_t n) {
    size_t bad = ring_.free(tickets, n);
    if (bad == n) return;
    raise(python().SlotNotAllocatedError,
          "tickets must be distinct and taken; got " + std::to_string(tickets[bad]),
          "slot"_a = tickets[bad]);
}

}  // namespace radixkv
