# One command builds the site into build/site, without network: `make docs`.
.PHONY: docs docs-clean

docs:
	python -m sphinx -b html -W --keep-going -j auto docs build/site

docs-clean:
	rm -rf build/site docs/gallery docs/api/names docs/cli
