/*
 * A record as a line of JSON, the way `consume --framing jsonl` and `dump -o jsonl --payload` write it: an object that has
 * "payload", a string, or "payload_base64". What else is in it must be JSON and is not looked at.
 */
#ifndef CLIENT_JSON_H
#define CLIENT_JSON_H

#include <stddef.h>
#include <stdint.h>

/*
 * Takes the payload out of a line, where it is decoded: *payload points into the line, whose bytes are no JSON any more.
 * Returns NULL, or what is wrong and, in *at, with which byte of the line.
 */
const char *json_read_record(uint8_t *line, size_t bytes, const uint8_t **payload, size_t *payload_bytes, size_t *at);

#endif
