/*
 * A fuzzer's bytes as packets on a channel, each with descriptors of chosen kinds. What a real program would send is short,
 * what none sends is possible:
 *
 *   packet   byte: 1, 2 = number of descriptors, up to 3; 4 = the payload is the whole packet, header and all; 8 = filled with
 *                  zeros up to the size that a message of that type has
 *            byte: type | byte: kinds of two descriptors, of 4 bits each | byte: their size | uint16 length | payload
 */
#ifndef TESTS_PACKETS_H
#define TESTS_PACKETS_H

#include <stddef.h>
#include <stdint.h>

/* Sends them all, or as many as the socket takes. */
void packets_send(int fd, const uint8_t *data, size_t size);

/* The same before and behind something: that has left no descriptor open. */
int packets_lowest_free_descriptor(void);

#endif
