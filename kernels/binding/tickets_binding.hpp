// radixkv/tree/tickets.py over `TicketRing`: arguments and errors.
#pragma once

#include "python.hpp"
#include "tree/ticket_ring.hpp"

namespace radixkv {

class TicketsBinding {
  public:
    explicit TicketsBinding(nb::handle num_tickets);

    uint32_t num_tickets() const { return ring_.size(); }
    uint32_t free_size() const { return ring_.free_size(); }

    // None where fewer are free.
    nb::object take(nb::handle n);

    void free(nb::handle tickets);
    void free(const int32_t* tickets, size_t n);
    TicketRing& ring() { return ring_; }

  private:
    TicketRing ring_;
};

}  // namespace radixkv
