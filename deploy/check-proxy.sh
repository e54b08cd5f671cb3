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

anyone=(-sS --max-time 60 ${INSECURE:+-k})
client=("${anyone[@]}" ${TOKEN:+-H "Authorization: Bearer $TOKEN"})
ask() { curl "${client[@]}" "$@"; }
status() { ask -o /dev/null -w '%{http_code}' "$@"; }
check() { # what, found, due
  if [ "$2" = "$3" ]; then echo "ok      $1"; else echo "FAILED  $1: $2 where $3 was due"; failed=1; fi
}

check 'the server is ready' "$(status "$url/readyz")" 200
case $url in https:*) check 'HTTP/2 is spoken' "$(ask -o /dev/null -w '%{http_version}' "$url/readyz")" 2 ;; esac

location=$(ask -o /dev/null -D - -X PUT -H 'Content-Type: text/plain' "$stream" | tr -d '\r' | sed -n 's/^[Ll]ocation: //p')
check "Location has the proxy's scheme and host (X-Forwarded-Proto, Host, trusted-proxies)" "$location" "$stream"

# Events must come while the response goes on, not when it ends or a buffer is full: first the one that says where the stream ends,
# then the one that is appended. nginx gathers for readers over HTTP/1.1 only, so both are asked.
came() { # a pattern: whether it comes before the reader gives up
  while kill -0 "$reader" 2>/dev/null; do
    if grep -qs "$1" "$scratch/events"; then return 0; fi
    sleep 0.1
  done
  return 1
}
for version in 1.1 2; do
  case $version$url in 2http:*) continue ;; esac
  curl "${client[@]}" -N "--http$version" --max-time 20 "$stream?offset=now&live=sse" >"$scratch/events" 2>/dev/null &
  reader=$!
  found=no
  if came '^event: *control' && ask -o /dev/null -X POST -H 'Content-Type: text/plain' -d one "$stream"; then
    if came '^data: *one'; then found=yes; fi
  fi
  kill "$reader" 2>/dev/null
  wait "$reader" 2>/dev/null
  check "an event comes while the response goes on, over HTTP/$version (no buffering)" "$found" yes
done

# The server answers 204 after `long-poll-timeout`, 25 s unless set. A proxy that is more impatient says 504.
check 'a long-poll outlasts the proxy' "$(status "$stream?offset=now&live=long-poll")" 204

# As long as an append may be, unless set otherwise, and without a length.
head -c 20000000 /dev/zero | tr '\0' x >"$scratch/body"
check 'a body of 20 MB without a length' \
  "$(status -X POST -H 'Content-Type: text/plain' -H 'Transfer-Encoding: chunked' --data-binary "@$scratch/body" "$stream")" 204

check 'a WebSocket is upgraded' "$(ask --http1.1 -o /dev/null -w '%{http_code}' --max-time 2 -H 'Connection: Upgrade' \
  -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' \
  "$url/feeds/v1/ws" 2>/dev/null)" 101

check '/metrics is not for everyone' "$(curl "${anyone[@]}" -o /dev/null -w '%{http_code}' "$url/metrics")" 403
check 'the stream is removed' "$(status -X DELETE "$stream")" 204
exit $failed
