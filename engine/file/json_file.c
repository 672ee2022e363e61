/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/file/json_file.h"

#include "engine/file/map_file.h"

int json_file_each(const char *path, json_file_fn read, void *ctx, struct sl_err *err)
{
	struct map_file map;
	struct json_scan j;
	struct proto_str key;
	int rc = map_file_read(path, JSON_FILE_MAX_BYTES, &map, err);
	if (rc != 0)
		return rc;
	json_scan_init(&j, (const char *)map.at, map.bytes);
	json_scan_object(&j);
	while (rc == 0 && json_scan_key(&j, &key))
		rc = read(ctx, path, key, &j, err);
	if (rc == 0 && !json_scan_end(&j))
		rc = sl_errf(err, SL_EINVAL, "%s: byte %zu: %s", path, (size_t)(j.at - j.text), j.bad);
	map_file_close(&map);
	return rc;
}
