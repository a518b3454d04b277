/*
 * Included ahead of every source of the library (by the makefile): what it takes from common/ gets names of its own, so that
 * a program with a crc32c() linked against liblogbroker.a has no second one. tests/library.sh looks at the symbols.
 */
#ifndef CLIENT_LIB_NAMESPACE_H
#define CLIENT_LIB_NAMESPACE_H

#define clock_now_ns lb_common_clock_now_ns
#define clock_until lb_common_clock_until
#define clock_wall_ms lb_common_clock_wall_ms
#define crc32c lb_common_crc32c
#define crc32c_by_table lb_common_crc32c_by_table
#define crc32c_copy lb_common_crc32c_copy
#define record_check lb_common_record_check
#define record_format_name lb_common_record_format_name
#define record_put lb_common_record_put
#define record_verdict_text lb_common_record_verdict_text

#endif
