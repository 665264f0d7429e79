#!/bin/sh
# A browser that does not answer.
exec sleep 1000
