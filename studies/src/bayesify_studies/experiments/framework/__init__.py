"""What every experiment stands on: what one is, work that is kept, findings, pages, and what several share."""
