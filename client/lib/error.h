/*
 * How the library fills in a struct lb_error.
 */
#ifndef CLIENT_LIB_ERROR_H
#define CLIENT_LIB_ERROR_H

#include "client/lib/logbroker.h"

/* Fills in *error unless it is NULL, and returns its code. The text is printf's. topic NULL, partition and offset -1: none. */
enum lb_code lb_error_set(struct lb_error *error, int code, const char *topic, int32_t partition, int64_t offset,
    const char *format, ...) __attribute__((format(printf, 6, 7)));
/* LB_INVALID_ARGUMENT: that is no topic's name, or NULL. */
enum lb_code lb_error_no_topic(struct lb_error *error, const char *topic);
/* "ADDRESS answered OFFSET_OUT_OF_RANGE: ..." for a broker's error code, one from the future included. */
void lb_error_explain(char *text, size_t bytes, const char *address, int code);

#endif
