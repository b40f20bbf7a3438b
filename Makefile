# One command builds the site into build/site and checks its links, without network: `make docs`.
.PHONY: docs docs-clean

docs:
	rm -rf build/site docs/api/names
	python -m sphinx -b html -d build/doctrees -W --keep-going -j auto docs build/site
	python docs/check_site.py build/site

docs-clean:
	rm -rf build/site build/doctrees docs/gallery docs/api/names docs/cli
