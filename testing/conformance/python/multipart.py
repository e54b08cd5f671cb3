"""Reads one multipart message from standard input with the standard library, and prints its parts as JSON."""

import email.parser
import email.policy
import json
import sys

# Bytes in, bytes out: the parser keeps 8-bit content as it is, and this policy does not fold or decode.
message = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(sys.stdin.buffer.read())
if not message.is_multipart() or message.defects:
    sys.exit(f"not a clean multipart message: {message.defects}")
parts = []
for part in message.get_payload():
    if part.defects:
        sys.exit(f"a part with defects: {part.defects}")
    # No transfer encoding is named, so this gives the bytes as they are.
    payload = part.get_payload(decode=True)
    parts.append({"type": part["Content-Type"], "hex": payload.hex()})
json.dump(parts, sys.stdout)
