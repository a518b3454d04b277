/*
 * Bytes of any kind as text: for a terminal, and as JSON. What comes out is always UTF-8 and never a control character.
 */
#ifndef CLIENT_TEXT_H
#define CLIENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/output.h"

/* How many of the first bytes are UTF-8: all of them, or those ahead of the first one that begins no character. */
size_t text_utf8_bytes(const uint8_t *bytes, size_t size);

/* With escapes as in C: \n, \t, \\ and \xNN for what a terminal must not get and for what is no UTF-8. */
void text_put_escaped(struct output *output, const void *bytes, size_t size);

/* A JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. */
void text_put_json(struct output *output, const void *bytes, size_t size);

/* A record's payload as a member of a JSON object: "payload", a string, or where it is no UTF-8 "payload_base64". */
void text_put_payload(struct output *output, const uint8_t *payload, size_t size);

/* Decodes Base64 (with padding, without anything else in it) where it stands. False: it is none. */
bool text_decode_base64(uint8_t *text, size_t *size);

#endif
