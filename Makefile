# make search: set up, then the main job.   make test: set up, then the tests.   make lint: ruff.   make docs: the pages of docs/.
PYTHON := .venv/bin/python
STAMP := .venv/.installed

.PHONY: search test lint docs clean

search: $(STAMP)
	$(PYTHON) main.py --config-name=proxyless $(ARGS)

test: $(STAMP)
	$(PYTHON) -m pytest $(ARGS)

lint: $(STAMP)
	$(PYTHON) -m ruff check .

# Warnings are errors, among them links that lead nowhere. NO_MKDOCS_2_WARNING: what the theme says about others.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet --site-dir build/site

clean:
	rm -rf .venv build *.egg-info

# An interpreter counts only if it runs, is a 3.10 and can make an environment: a pyenv shim may exist and fail.
$(STAMP): setup.py pyproject.toml constraints.txt Makefile
	@usable() { "$$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 10))' >/dev/null 2>&1; }; \
	usable $(PYTHON) || { \
	  found=; \
	  for candidate in python3.10 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.10*/bin/python3.10 \
	      "$${XDG_DATA_HOME:-$$HOME/.local/share}"/uv/python/cpython-3.10*/bin/python3.10 \
	      "$${UV_PYTHON_INSTALL_DIR:-/nonexistent}"/cpython-3.10*/bin/python3.10 \
	      /opt/python/cp310-cp310/bin/python3.10 /usr/local/bin/python3.10 python3 python; do \
	    if usable "$$candidate"; then found="$$candidate"; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "error: nnas needs a working Python 3.10 (nnabla has no wheels for newer ones) with venv and ensurepip. Get one by any of:" >&2; \
	    echo "  pyenv install 3.10" >&2; \
	    echo "  uv python install 3.10" >&2; \
	    echo "  apt-get install python3.10 python3.10-venv   (Ubuntu 22.04; elsewhere: conda create -n py310 python=3.10 and activate it)" >&2; \
	    exit 1; \
	  fi; \
	  echo "making .venv with $$found"; \
	  "$$found" -m venv --clear .venv; \
	}
	$(PYTHON) -m pip install --quiet --use-pep517 --disable-pip-version-check -c constraints.txt -e '.[dev,docs,fast,mpi,onnx,tensorboard]'
	@touch $@
