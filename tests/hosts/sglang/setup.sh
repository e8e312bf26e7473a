#!/bin/sh
# SGLang 0.5.23 for the CPU beside this checkout's radixkv, in the folder $1: some 4 GB, 3 minutes.
# Run again, it only installs radixkv anew.
set -e
folder=$1 version=${2:-0.5.23} here=$(cd "$(dirname "$0")" && pwd)
pip="$folder/bin/pip --disable-pip-version-check --quiet"
if [ ! -f "$folder/.sglang-$version" ]; then
  [ -d "$folder" ] || python3.11 -m venv "$folder"
  $pip install -r "$here/requirements.txt"
  # torchvision from PyPI is built for CUDA; stubs/sitecustomize.py lets its Python part import.
  $pip install --no-deps torchvision==0.28.0 "sglang==$version"
  touch "$folder/.sglang-$version"
fi
$pip install --no-build-isolation --no-deps --force-reinstall "$here"/../../../build/hosts/wheel/*.whl
$pip install 'radixkv[sglang]' pytest-timeout
