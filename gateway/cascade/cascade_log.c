/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/cascade/cascade_log.h"

#include "base/line_file.h"
#include "base/metrics.h"

COUNTER(lost_total, "sluice_cascade_log_lost_total",
	"Outcomes of the cascade that could not be written to the file cascade.log");

int cascade_log_open(const char *path, uint64_t max_bytes, struct line_file **out, struct sl_err *err)
{
	return line_file_open("cascade.log", path, max_bytes, out, err);
}

void cascade_log_write(struct line_file *log, const void *line, size_t n)
{
	metric_add(&lost_total, !line_file_write(log, line, n));
}

void cascade_log_close(struct line_file *log) { line_file_close(log); }
