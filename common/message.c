#include "common/message.h"

bool
message_connection_valid(const struct message_connection *connection, size_t message_size, int descriptor_count)
{
	bool spilled = connection->spilled_end > 0;

	if (connection->inline_bytes < 0 || connection->inline_bytes > MESSAGE_INLINE_MAX_BYTES ||
	    message_size != sizeof(*connection) + (size_t)connection->inline_bytes)
		return false;
	if (connection->spilled_position < 0 || connection->spilled_position > connection->spilled_end ||
	    (spilled && connection->inline_bytes > 0))
		return false;
	if (connection->held_until_ns < 0 || (connection->held_until_ns > 0 && connection->inline_bytes == 0 &&
	    connection->spilled_position == connection->spilled_end))
		return false;
	return descriptor_count == (spilled ? 2 : 1);
}
