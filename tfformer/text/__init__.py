"""From text to ids and back; documents as sentences."""
