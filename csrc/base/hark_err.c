/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void hark_err_init(struct hark_err *err)
{
	memset(err, 0, sizeof(*err));
}

int hark_err_set(struct hark_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err->err)
		return -1;
	err->err = code > 0 ? code : EIO;
	va_start(ap, fmt);
	(void)vsnprintf(err->what, sizeof(err->what), fmt, ap);
	va_end(ap);
	return -1;
}

int hark_err_hint(struct hark_err *err, const char *fmt, ...)
{
	va_list ap;

	if (!err->err || err->hint[0])
		return -1;
	va_start(ap, fmt);
	(void)vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
	va_end(ap);
	return -1;
}
