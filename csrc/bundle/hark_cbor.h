/* SPDX-License-Identifier: Apache-2.0 */
/* Strict CBOR, inside csrc/bundle only; the public entry is hark_cbor_check in hark_bundle.h. */
#ifndef HARK_CBOR_H
#define HARK_CBOR_H

#include "hark_bundle.h"

/*
 * As hark_cbor_check, for the payload of event number `event` of a section that starts at `base`:
 * spans are offsets from there and are appended after the `*len` that are already stored.
 */
enum hark_cbor_fault hark_cbor_span(const uint8_t *base, const uint8_t *data, size_t size,
				    uint32_t event, struct hark_span *refs, uint32_t cap,
				    uint32_t *len);

#endif
