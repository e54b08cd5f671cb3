#!/usr/bin/env bash
# Asks through a proxy whether everything that clients need comes through: deploy/check-proxy.sh https://streams.example
# Needs curl. It makes a stream with a name of its own, and removes it. TOKEN is sent if it is set; with
# INSECURE=yes certificates are not checked. docs/operating/proxies.md explains what is asked.
set -u
url=${1:?the URL of the proxy}
name=check-$$-$RANDOM
stream=$url/v1/stream/$name
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

ask() { curl -sS --max-time 60 ${INSECURE:+-k} ${TOKEN:+-H "Authorization: Bearer $TOKEN"} "$@"; }
status() { ask -o /dev/null -w '%{http_code}' "$@"; }
check() { # what, found, due
  if [ "$2" = "$3" ]; then echo "ok      $1"; else echo "FAILED  $1: $2 where $3 was due"; failed=1; fi
}

check 'the server is ready' "$(status "$url/readyz")" 200
case $url in https:*) check 'HTTP/2 is spoken' "$(ask -o /dev/null -w '%{http_version}' "$url/readyz")" 2 ;; esac

location=$(ask -o /dev/null -D - -X PUT -H 'Content-Type: text/plain' "$stream" | tr -d '\r' | sed -n 's/^[Ll]ocation: //p')
check "Location has the proxy's scheme and host (X-Forwarded-Proto, Host, trusted-proxies)" "$location" "$stream"

# An event must come while the response goes on, not when it ends.
ask -N "$stream?offset=-1&live=sse" >"$scratch/events" &
reader=$!
sleep 1
ask -o /dev/null -X POST -H 'Content-Type: text/plain' -d one "$stream"
came=no
for _ in 1 2 3 4 5 6 7 8 9 10; do
  if grep -q '^data: *one' "$scratch/events"; then came=yes; break; fi
  sleep 0.2
done
check 'an event comes within two seconds (no buffering)' "$came" yes
kill "$reader" 2>/dev/null
wait "$reader" 2>/dev/null

# The server answers 204 after `long-poll-timeout`, 25 s unless set. A proxy that is more impatient says 504.
check 'a long-poll outlasts the proxy' "$(status "$stream?offset=now&live=long-poll")" 204

# As long as an append may be, unless set otherwise, and without a length.
head -c 20000000 /dev/zero | tr '\0' x >"$scratch/body"
check 'a body of 20 MB without a length' \
  "$(status -X POST -H 'Content-Type: text/plain' -H 'Transfer-Encoding: chunked' --data-binary "@$scratch/body" "$stream")" 204

check 'a WebSocket is upgraded' "$(ask --http1.1 -o /dev/null -w '%{http_code}' --max-time 2 -H 'Connection: Upgrade' \
  -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' \
  "$url/feeds/v1/ws" 2>/dev/null)" 101

check '/metrics is not for everyone' "$(TOKEN='' status "$url/metrics")" 403
check 'the stream is removed' "$(status -X DELETE "$stream")" 204
exit $failed
